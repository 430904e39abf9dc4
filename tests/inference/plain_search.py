"""Beam search [6.1] written again, with lists and without a cache."""

from transformer.decoding.search import PENALTIES

EOS_ID = 3


def plain_search(next_log_probs, allows, limit, beam_size, penalty, alpha):
    """Returns each step's continuations: (tokens, log-probability, score, fate), best first."""
    live, finished, steps = [((), 0.0)], [], []
    for length in range(1, limit + 1):
        options = [
            ((*tokens, token), total + log_prob)
            for tokens, total in live
            for token, log_prob in enumerate(next_log_probs(tokens))
            if allows((*tokens, token)) and (length < limit or token == EOS_ID)
        ]
        options = sorted(options, key=lambda option: -option[1])[: 2 * beam_size]
        live, step, norm = [], [], float(PENALTIES[penalty](length, alpha))
        for rank, (tokens, total) in enumerate(options):
            fate = "pruned"
            if tokens[-1] == EOS_ID and rank < beam_size:
                finished.append(total / norm)
                fate = "finished"
            elif tokens[-1] != EOS_ID and len(live) < beam_size:
                live.append((tokens, total))
                fate = "kept"
            step.append((tokens, total, total / norm, fate))
        steps.append(step)
        if not live:
            break
        if len(finished) >= beam_size and max(finished) >= live[0][1] / norm:
            break
    return steps
