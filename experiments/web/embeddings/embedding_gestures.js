// Moving, zooming and choosing with mouse, fingers and keys.

const STEP = 60; // pixels that an arrow key moves
const STILL = 5; // pixels within which a press is no drag

// `hover` and `pick` are called with a token, or null where there is none.
function addGestures(map, { hover, pick }) {
  const canvas = map.canvas;
  const fingers = new Map();
  let moved = 0;

  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const reachOf = (event) => (event.pointerType === "mouse" ? 12 : 24);
  const spread = () => {
    const [[a, b], [c, d]] = [...fingers.values()];
    return { middle: [(a + c) / 2, (b + d) / 2], length: Math.hypot(a - c, b - d) };
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (!fingers.size) moved = 0;
    fingers.set(event.pointerId, placeOf(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = placeOf(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") hover(map.at(...now, reachOf(event)));
      return;
    }
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (fingers.size === 2) {
      const earlier = spread();
      fingers.set(event.pointerId, now);
      const later = spread();
      map.move(later.middle[0] - earlier.middle[0], later.middle[1] - earlier.middle[1]);
      map.zoom(later.length / Math.max(earlier.length, 1), ...later.middle);
    } else {
      fingers.set(event.pointerId, now);
      if (moved > STILL) map.move(now[0] - before[0], now[1] - before[1]);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (fingers.size === 1 && moved <= STILL) pick(map.at(...placeOf(event), reachOf(event)));
  });
  for (const ended of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(ended, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode ? 30 : 1);
      map.zoom(Math.exp(-Math.min(Math.max(pixels, -300), 300) / 400), ...placeOf(event));
    },
    { passive: false },
  );
  const keys = {
    ArrowLeft: () => map.move(STEP, 0),
    ArrowRight: () => map.move(-STEP, 0),
    ArrowUp: () => map.move(0, STEP),
    ArrowDown: () => map.move(0, -STEP),
    "+": () => map.zoom(1.4),
    "=": () => map.zoom(1.4),
    "-": () => map.zoom(1 / 1.4),
    0: () => map.fit(),
    Escape: () => pick(null),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
}
