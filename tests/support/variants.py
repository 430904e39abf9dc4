"""Published variants of the model, alone and so that any two values meet."""

import itertools

import pytest

# Fields of a model that has the variant, then of models that lack it or a part of it. Of 22 = 2 *
# 11 the heads are no divisor where they need not be, and 6 is even, for encodings that turn pairs.
VARIANTS = {
    "rotary": ({"positions": "rotary", "head_size": 6}, {"positions": "none"}),
    "relative_bias": ({"positions": "relative_bias"}, {"positions": "none"}),
    "relative_shaw": ({"positions": "relative_shaw"}, {"positions": "none"}),
    "alibi": ({"positions": "alibi", "num_heads": 6, "head_size": 4}, {"positions": "none"}),
    "sinusoidal+rotary": (
        {"positions": "sinusoidal+rotary", "head_size": 6},
        {"positions": "sinusoidal"},
        {"positions": "rotary"},
    ),
    "learned+relative_bias+alibi": (
        {"positions": "learned+relative_bias+alibi"},
        {"positions": "learned+relative_bias"},
        {"positions": "learned+alibi"},
        {"positions": "relative_bias+alibi"},
    ),
    "rotary+relative_shaw": (
        {"positions": "rotary+relative_shaw", "head_size": 6},
        {"positions": "rotary"},
        {"positions": "relative_shaw"},
    ),
    "encoder's own": ({"encoder_positions": "relative_shaw"}, {"encoder_positions": ""}),
    "decoder's own": ({"decoder_positions": "split+relative_bias"}, {"decoder_positions": ""}),
    "cross rotary": ({"cross_positions": "rotary", "head_size": 6}, {"cross_positions": "none"}),
    "cross relative_bias": ({"cross_positions": "relative_bias"}, {"cross_positions": "none"}),
    "cross relative_shaw": ({"cross_positions": "relative_shaw"}, {"cross_positions": "none"}),
    "cross alibi": ({"cross_positions": "alibi"}, {"cross_positions": "none"}),
    "head size": ({"num_heads": 4, "head_size": 6}, {"head_size": 9}),
    "one key": ({"num_heads": 4, "head_size": 6, "num_kv_heads": 1}, {"num_kv_heads": 0}),
    "grouped keys": ({"num_heads": 4, "head_size": 6, "num_kv_heads": 2}, {"num_kv_heads": 0}),
    "talking heads": (
        {"num_heads": 4, "head_size": 6, "talking_heads": True},
        {"talking_heads": False},
    ),
    "scores without a scale": ({"scale_scores": False}, {"scale_scores": True}),
    "l2 of queries": ({"query_key_norm": "l2"}, {"query_key_norm": "none"}),
    "norm of queries": (
        {"query_key_norm": "layer", "norm_epsilon": 0.1},
        {"query_key_norm": "none"},
        {"norm_epsilon": 1e-6},
    ),
    "l2 and shaw": (
        {"query_key_norm": "l2", "positions": "relative_shaw"},
        {"query_key_norm": "none"},
        {"positions": "none"},
    ),
    "a sink of one": ({"attention_sink": "one"}, {"attention_sink": "none"}),
    "learned sinks": (
        {"attention_sink": "learned", "num_heads": 4, "head_size": 6},
        {"attention_sink": "none"},
        {"attention_sink": "one"},
    ),
    "head gates": ({"head_gate": True, "num_heads": 4, "head_size": 6}, {"head_gate": False}),
    "output bias": ({"output_bias": True}, {"output_bias": False}),
    "rms": ({"norm": "rms", "norm_epsilon": 0.1}, {"norm": "layer"}, {"norm_epsilon": 1e-6}),
    "rms before": ({"norm": "rms", "norm_position": "pre"}, {"norm": "layer"}),
    "norms before and after": (
        {"norm_position": "both"},
        {"norm_position": "pre"},
        {"norm_position": "post"},
    ),
    "shared": ({"share_layers": True}, {"share_layers": False}),
    "scanned": ({"scan_layers": True},),  # the function stays: see the test of its own
    "scanned and shared": (
        {"scan_layers": True, "share_layers": True, "num_encoder_layers": 3},
        {"num_encoder_layers": 2},
    ),
    "remat": ({"remat": True},),  # likewise
    "chunked": ({"attention_implementation": "chunked"},),  # likewise
}
PAIRED = {
    "positions": ("rotary", "relative_bias", "relative_shaw", "alibi", "learned+rotary"),
    "cross_positions": ("none", "rotary", "relative_bias", "relative_shaw", "alibi"),
    "num_kv_heads": (0, 1, 2),
    "head_size": (0, 6),
    "talking_heads": (False, True),
    "query_key_norm": ("none", "l2", "layer"),
    "attention_sink": ("none", "one", "learned"),
    "head_gate": (False, True),
    "norm": ("layer", "rms"),
    "norm_position": ("post", "pre", "both"),
    "share_layers": (False, True),
    "scan_layers": (False, True),
    "remat": (False, True),
    "attention_bias": (True, False),
}
# 4 heads of 10 or 6 numbers: divisible by every number of keys' heads, and even.
PAIRED_SIZES = {"d_model": 40, "num_heads": 4}


def sizes_of(case):
    """Of pairs within a layer, one layer on each side; more of them is what a stack is about."""
    stacked = case["share_layers"] or case["scan_layers"]
    layers = {} if stacked else {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return {**PAIRED_SIZES, **layers}


def pairs_of(case):
    return set(itertools.combinations(case.items(), 2))


def covering_cases():
    """Models in which every value of a field meets every value of every other field."""
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(PAIRED, 2)
        for x, y in itertools.product(PAIRED[a], PAIRED[b])
    }

    def met(fields):
        return missing & pairs_of({name: fields[name] for name in PAIRED if name in fields})

    while missing:
        case = dict(min(missing, key=str))
        for name in [name for name in PAIRED if name not in case]:
            case = max(({**case, name: value} for value in PAIRED[name]), key=lambda c: len(met(c)))
        missing -= met(case)
        yield {name: case[name] for name in PAIRED}


def few(cases, held):
    """Few of these cases, which hold all that they hold together, each the set `held(case)`."""
    missing = set().union(*map(held, cases))
    while missing:
        yield (best := max(cases, key=lambda case: len(missing & held(case))))
        missing -= held(best)


def full_but(few, names):
    """Names as parameters of a test, of which all but a few are marked as full."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.full) for name in names]


CASES = list(covering_cases())
MODELS = {name: fields[0] for name, fields in VARIANTS.items()}
MODELS |= {"-".join(map(str, case.values())): {**sizes_of(case), **case} for case in CASES}
EACH_VALUE = [{**sizes_of(case), **case} for case in few(CASES, lambda case: set(case.items()))]
