// What the page was given: tokens, their places and neighbours; and the search among them.

const NUMBERS = { int8: Int8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

function decode(encoded) {
  const type = Object.keys(NUMBERS).find((name) => name in encoded);
  const bytes = Uint8Array.from(atob(encoded[type]), (letter) => letter.charCodeAt(0));
  return new NUMBERS[type](bytes.buffer);
}

function readTable(data, number) {
  const table = data.tables[number];
  const vocabulary = data.vocabularies[table.vocabulary];
  return {
    name: table.name,
    pieces: vocabulary.pieces,
    kinds: decode(vocabulary.kinds),
    each: table.neighbours.shape[1],
    neighbours: decode(table.neighbours),
    cosines: decode(table.cosines),
    maps: table.maps.map((map) => ({
      method: map.method,
      title: map.title,
      points: decode(map.points),
      count: map.points.shape[0],
    })),
  };
}

// The neighbours of a token, the nearest first.
function neighboursOf(table, token) {
  return Array.from({ length: table.each }, (_, rank) => ({
    token: table.neighbours[token * table.each + rank],
    cosine: table.cosines[token * table.each + rank] / 100,
  }));
}

// Tokens that a query names: as it stands, then in any case, at the start, within; each by id.
function search(table, query) {
  const small = query.toLowerCase();
  const marked = query.startsWith("▁");
  const groups = [[], [], [], []];
  if (!query) return [];
  table.pieces.forEach((piece, token) => {
    const text = marked ? piece : piece.replace(/^▁(?=.)/, "");
    const place = text.toLowerCase().indexOf(small);
    if (place < 0) return;
    const rank = text === query ? 0 : text.length === query.length ? 1 : place === 0 ? 2 : 3;
    groups[rank].push(token);
  });
  // Of two that are spelt the same, the one that begins a word.
  groups[0].sort((a, b) => table.pieces[b].startsWith("▁") - table.pieces[a].startsWith("▁"));
  return groups.flat();
}
