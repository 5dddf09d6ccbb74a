"""Document 003: the benchmark's tasks, their examples, published scores, and the extension on them. Chapter 11."""

import itertools
import math
from dataclasses import replace

import numpy as np
import torch

import rope_lessons as rl
from rope_lessons.chomsky import TASKS
from rope_lessons.chomsky.grid import Job
from rope_lessons.chomsky.training import Protocol, Training
from rope_lessons.chomsky.training import generator as source

# Scores in % found in print: RNN, Stack-RNN, Tape-RNN, Transformer, LSTM.
PRINTED = {
    "modular_arithmetic": (100, 100, 100, 24.2, 100),
    "parity_check": (100, 100, 100, 52.0, 100),
    "stack_manipulation": (56.0, 100, 100, 57.5, 59.1),
    "reverse_string": (62.0, 100, 100, 62.3, 60.9),
    "duplicate_string": (50.3, 52.8, 100, 52.8, 57.6),
    "odds_first": (51.0, 51.9, 100, 52.8, 55.6),
}
RNN, STACK, TAPE, TRANSFORMER, LSTM = range(5)
SOLVED = 90


def bits(letters: str) -> list[int]:
    return ["ab".index(letter) for letter in letters]


def evaluate(expression: str) -> int:
    """Python's own arithmetic."""
    return int(eval(expression.replace("×", "*").replace("−", "-").replace("z", "(z)")))


# --- the 15 tasks --------------------------------------------------------------------------------------------------


def test_even_pairs_is_first_equals_last():
    """aabba has one ab and one ba. For every string up to 12 symbols, even means that the ends agree."""
    changes = [a + b for a, b in itertools.pairwise("aabba")]
    assert (changes.count("ab"), changes.count("ba")) == (1, 1)
    assert TASKS["even_pairs"].answer(bits("aabba")) == [0]
    for length in range(1, 13):
        for string in itertools.product((0, 1), repeat=length):
            changes_even = sum(a != b for a, b in itertools.pairwise(string)) % 2 == 0
            assert changes_even == (string[0] == string[-1])
            if length < 7:
                assert TASKS["even_pairs"].answer(string) == [1 - changes_even]


def test_example_of_modular_arithmetic():
    assert evaluate("1 + 2 - 4") == -1
    task = TASKS["modular_arithmetic"]
    assert task.answer(task.encode("1+2-4")) == [-1 % 5] == [4]


def test_example_of_parity():
    assert "aaabba".count("b") == 2
    assert TASKS["parity_check"].answer(bits("aaabba")) == [0]


def test_example_of_the_cycle():
    """2 as the article reads the tokens. In the published code 0, 1, 2 are -1, 0, +1, and the answer is 4."""
    steps = {0: 0, 1: 1, 2: -1}
    string = [0, 1, 0, 2, 1, 1]
    assert sum(steps[token] for token in string) % 5 == 2
    assert sum(token - 1 for token in string) % 5 == 4
    task = TASKS["cycle_navigation"]
    assert (replace(task, variant="paper").answer(string), task.answer(string)) == ([2], [4])


def test_example_with_brackets():
    """10, so 0. The task itself never draws such an expression: there every operation has its own brackets."""
    assert evaluate("-(1-2)*(4-3*(-2))") == 10
    task = TASKS["modular_arithmetic_brackets"]
    input, target, _ = task.sample(200, 9, torch.Generator().manual_seed(0))
    for row, value in zip(input.tolist(), target[:, 0].tolist(), strict=True):
        text = "".join(task.input_symbols[token] for token in row)
        assert evaluate(text) % 5 == value
        assert text.startswith("(")
        assert text.endswith(")")


def test_example_of_reverse():
    assert TASKS["reverse_string"].answer(bits("aabba")) == bits("abbaa")


def test_example_of_the_equation():
    """z = 3, and no other digit."""
    solves = [z for z in range(5) if eval("-(1-2)*(4-z*(-2))", {"z": z}) % 5 == 0]
    assert solves == [3]


def test_equations_have_no_multiplication():
    """The code's equations have + and - only, so the unknown counts once and the solution is the only one. With a
    product there may be five: 0 × z = 0."""
    assert [z for z in range(5) if 0 * z % 5 == 0] == [0, 1, 2, 3, 4]
    task = TASKS["solve_equation"]
    input, target, _ = task.sample(100, 13, torch.Generator().manual_seed(0))
    for row, value in zip(input.tolist(), target[:, 0].tolist(), strict=True):
        text = "".join(task.input_symbols[token] for token in row)
        assert "*" not in text
        left, right = text.replace("x", "({})").split("=")
        assert [z for z in range(5) if (eval(left.format(z)) - int(right)) % 5 == 0] == [value]


def test_equations_by_trying_five_digits():
    """Five evaluations solve an equation, and there is always a solution: the digit that was replaced."""
    task = replace(TASKS["solve_equation"], variant="paper")
    input, target, _ = task.sample(100, 15, torch.Generator().manual_seed(1))
    for row, value in zip(input.tolist(), target[:, 0].tolist(), strict=True):
        text = "".join(task.input_symbols[token] for token in row)
        left, right = text.replace("x", "({})").split("=")
        assert value in [z for z in range(5) if (eval(left.format(z)) - int(right)) % 5 == 0]


def test_example_of_the_stack():
    """abba either way round: the example is the same backwards, so it does not say which end comes first. The code
    writes the top first."""
    stack = list("abbaa")
    stack.pop()
    stack.append("a")
    stack.pop()
    assert "".join(stack) == "abba" == "abba"[::-1]
    task = TASKS["stack_manipulation"]
    found = task.answer(task.encode([*"01100", "POP", "PUSH 0", "POP"]))
    assert task.decode(found).startswith("0110#")
    other = task.decode(task.answer(task.encode([*"0111", "POP"])))
    assert other.startswith("110#")  # 011 on the stack, bottom to top


def test_example_of_addition():
    """18 + 5 = 23 with the highest bit first. The code reads the lowest first: 9 + 5 = 14, written 0111."""
    assert int("10010", 2) + int("101", 2) == int("10111", 2) == 23
    assert int("10010"[::-1], 2) + int("101"[::-1], 2) == int("0111"[::-1], 2) == 14
    task = TASKS["binary_addition"]
    assert task.decode(task.answer(task.encode("10010+101"))).startswith("0111#")
    big = replace(task, variant="big-endian")
    assert big.decode(big.answer(big.encode("10010+101"))).startswith("10111#")


def test_example_of_multiplication():
    """4 × 22 = 88 with the highest bit first; 1 × 13 = 13 as the code reads it."""
    assert int("100", 2) * int("10110", 2) == int("1011000", 2) == 88
    task = TASKS["binary_multiplication"]
    assert task.decode(task.answer(task.encode("100*10110"))).startswith("1011#")
    assert int("1011"[::-1], 2) == int("100"[::-1], 2) * int("10110"[::-1], 2) == 13


def test_example_of_the_root_is_wrong():
    """101001 is 41, whose root rounds down to 6 = 110. 101 is 5. Read from the other end it is 37: again 6."""
    assert int("101001", 2) == 41
    assert math.isqrt(41) == 6 == int("110", 2)
    assert int("101", 2) == 5
    assert math.isqrt(int("101001"[::-1], 2)) == 6
    task = TASKS["compute_sqrt"]
    assert task.decode(task.answer(task.encode("101001"))) == "110"


def root_by_bits(number: int) -> tuple[int, int]:
    """Highest bit first: keep a bit if the square still fits. The root, and how many products it took."""
    root, products = 0, 0
    for place in reversed(range(number.bit_length() // 2 + 1)):
        products += 1
        if (root + (1 << place)) ** 2 <= number:
            root += 1 << place
    return root, products


def test_root_by_trying_all():
    """It finds the root, and needs as many products as the root is large; half as many as the string has bits do."""
    for number in (41, 1000, 2**20 - 1):
        trying = next(x for x in itertools.count() if (x + 1) ** 2 > number)
        found, products = root_by_bits(number)
        assert found == trying == math.isqrt(number)
        assert products <= number.bit_length() // 2 + 1
    assert trying == 1023
    assert products == 11


def pumps(word: str, length: int) -> bool:
    """Can a part of the word of at most ``length`` be pumped so that the word stays a square, as in a context-free
    language? Parts v and x around w are left out and doubled."""

    def square(s: str) -> bool:
        return len(s) % 2 == 0 and s[: len(s) // 2] == s[len(s) // 2 :]

    for start in range(len(word)):
        for a, b, c, d in itertools.combinations_with_replacement(range(start, min(start + length, len(word)) + 1), 4):
            if a != start or (b == a and c == d):
                continue
            u, v, w, x, y = word[:a], word[a:b], word[b:c], word[c:d], word[d:]
            if square(u + w + y) and square(u + v * 2 + w + x * 2 + y):
                return True
    return False


def test_duplicate_needs_more_than_a_stack():
    """The squares are not regular: all 2ⁿ first halves must be told apart. Nor context-free: aⁿbⁿaⁿbⁿ does not pump
    (n = 3 and 4, every split); abab, which is shorter than the part that may be chosen, does."""
    assert TASKS["duplicate_string"].answer(bits("abaab")) == bits("abaababaab")
    for n in (1, 4, 8):
        halves = list(itertools.product((0, 1), repeat=n))
        continued = {half: frozenset(end for end in halves if half == end) for half in halves}
        assert len(set(continued.values())) == 2**n  # so many states, at least, after n symbols
    for n in (3, 4):
        assert not pumps(("a" * n + "b" * n) * 2, n)
    assert pumps("abab", 4)


def test_example_of_the_missing_symbol():
    task = TASKS["missing_duplicate_string"]
    assert task.answer(task.encode("01_010")) == bits("a")
    assert "ab_aba".replace("_", "a") == "aba" * 2


def test_example_of_odds_first():
    """aaaaba. The published code puts the second, fourth and sixth first: abaaaa."""
    assert "aaabaa"[::2] + "aaabaa"[1::2] == "aaaaba"
    task = TASKS["odds_first"]
    assert replace(task, variant="paper").answer(bits("aaabaa")) == bits("aaaaba")
    assert task.answer(bits("aaabaa")) == bits("abaaaa")


def test_example_of_bucket_sort():
    task = TASKS["bucket_sort"]
    assert task.decode(task.answer(task.encode("421302214"))) == "011222344" == "".join(sorted("421302214"))


def test_tasks_at_any_length():
    """Every task draws strings of 1 to 500 symbols (modular arithmetic the odd lengths) that its oracle answers."""
    for task in TASKS.values():
        for length in (1, 2, 40, 499):
            input, target, mask = task.sample(1, length, torch.Generator().manual_seed(0))
            assert task.answer(input[0].tolist()) == target[0].tolist()
            assert target.shape == mask.shape == (1, task.output_length(length))
            assert input.shape[1] == length or task.name == "modular_arithmetic"


def test_levels_are_not_a_ladder_for_a_transformer():
    """Printed: 52.0 on parity, a regular task, 57.5 and 62.3 on two context-free ones, 52.8 on two of the highest."""
    scores = {name: row[TRANSFORMER] for name, row in PRINTED.items()}
    assert scores["parity_check"] < scores["duplicate_string"] < scores["stack_manipulation"]
    assert TASKS["parity_check"].level == "regular"
    assert TASKS["duplicate_string"].level == "context-sensitive"


def test_sequences_are_longer_than_the_strings():
    """The empty tokens for the answer stand at positions too: up to 3 times 40 and 3 times 500."""
    for length, longest in ((40, 120), (500, 1500)):
        assert max(length + task.output_length(length) for task in TASKS.values()) == longest
    assert longest < 2048


# --- published results ---------------------------------------------------------------------------------------------


def test_transformer_is_not_last_everywhere():
    """In the mean of the six printed rows it is. In four of them another network is behind it."""
    table = np.array(list(PRINTED.values()))
    means = table.mean(0)
    assert means.argmin() == TRANSFORMER
    assert means.argmax() == TAPE
    assert (table[:, TAPE] == 100).all()
    behind = [name for name, row in PRINTED.items() if min(row) < row[TRANSFORMER]]
    assert behind == ["stack_manipulation", "reverse_string", "duplicate_string", "odds_first"]


def test_ratings_against_the_printed_rows():
    """RNN and LSTM solve the two regular rows and no other, the Stack-RNN the context-free ones too, the Tape-RNN all,
    the Transformer none. LSTM above RNN holds in three of the four unsolved rows."""
    levels = {name: TASKS[name].level for name in PRINTED}
    solved = [{name for name, row in PRINTED.items() if row[net] >= SOLVED} for net in range(5)]
    regular = {name for name, level in levels.items() if level == "regular"}
    free = {name for name, level in levels.items() if level == "context-free"}
    assert solved[RNN] == solved[LSTM] == regular
    assert solved[STACK] == regular | free
    assert solved[TAPE] == set(PRINTED)
    assert solved[TRANSFORMER] == set()
    ahead = [name for name, row in PRINTED.items() if row[LSTM] > row[RNN]]
    assert sorted(set(PRINTED) - regular - set(ahead)) == ["reverse_string"]


def test_the_score_counts_symbols():
    """An untrained model on strings whose answers end at different places: right tokens over counted tokens, which is
    neither the share of right strings nor the mean over strings of their shares."""
    protocol = Protocol(samples=64, width=16, layers=1, heads=2, feed_forward=16, dropout=0.0)
    training = Training([Job("stack_manipulation", "transformer", "rope", "plain", 0, 3e-4)], protocol)
    inputs, targets, mask = training.task.sample(64, 9, source("data", "test", 9, 0))
    with torch.no_grad():
        scores = training.scores(inputs[None], targets.shape[1], ("test", 9, 0), False, "random")[0]
    right = (scores.argmax(-1) == targets) & mask
    found = training.shares(9)["accuracy"].item()
    assert found == (right.sum() / mask.sum()).item()
    assert not mask.all()
    assert found > (right | ~mask).all(1).double().mean().item() + 0.1


# --- the extension on the benchmark --------------------------------------------------------------------------------


def test_formulas_of_reverse_and_duplicate():
    x = [0, 1, 1, 0, 1]
    length = len(x)
    assert TASKS["reverse_string"].answer(x) == [x[length - i] for i in range(1, length + 1)]
    twice = TASKS["duplicate_string"].answer(x)
    assert all(twice[i] == x[i] == twice[length + i] for i in range(length))


def layers_needed(window: int, length: int) -> int:
    """For the last output of reverse to see the first symbol, by multiplying causal masks (a window counts itself)."""
    index = torch.arange(2 * length)
    seen = rl.local.dense_mask(rl.local.window_mask(window), index, index) & rl.local.dense_mask(
        rl.local.causal_mask, index, index
    )
    reach, layers = seen, 1
    while not reach[-1, 0]:
        reach, layers = (reach.double() @ seen.double()) > 0, layers + 1
    return layers


def test_one_local_layer_is_not_enough():
    """One layer with a window sees w - 1 tokens back; reverse asks for up to 2 L - 1, duplicate for 2 L - 1 at its
    end and L in every place."""
    for length, window in ((8, 8), (16, 8)):
        assert layers_needed(window, length) > 1
        assert rl.local.receptive_field(window, 1, causal=True) <= length
    assert layers_needed(16, 8) == 1  # a window as long as the sequence is no window


def test_layers_of_local_attention():
    """Reverse: ⌈(2L-1)/(w-1)⌉, by counting. ⌈L/(2w)⌉ and ⌈L/w⌉ are too few."""
    for length, window in ((8, 4), (16, 4), (12, 6), (20, 9)):
        needed = layers_needed(window, length)
        assert needed == math.ceil((2 * length - 1) / (window - 1))
        assert needed > math.ceil(length / window) > math.ceil(length / (2 * window)) - 1
        assert needed > math.ceil(length / (2 * window))


def test_three_tasks_do_not_depend_on_order():
    """Parity, the walk and sorting give the same answer for every order of the symbols. Even pairs, reverse,
    duplicate, odds first and the root do not."""
    generator = torch.Generator().manual_seed(0)
    free = set()
    for name, task in TASKS.items():
        if name in ("modular_arithmetic", "modular_arithmetic_brackets", "solve_equation"):
            continue  # not every order is an expression
        if task.name.startswith("binary") or name in ("stack_manipulation", "missing_duplicate_string"):
            continue  # nor is every order a pair of numbers, a stack with actions, or a string written twice
        same = True
        for _ in range(20):
            input, target, _ = task.sample(1, 9, generator)
            mixed = input[0, torch.randperm(9, generator=generator)].tolist()
            same &= task.answer(mixed) == target[0].tolist()
        free |= {name} if same else set()
    assert free == {"parity_check", "cycle_navigation", "bucket_sort"}


def test_levels_of_the_tasks():
    """Four, four and seven, in the order in which the article lists them."""
    levels = [task.level for task in TASKS.values()]
    assert levels == 4 * ["regular"] + 4 * ["context-free"] + 7 * ["context-sensitive"]
    named = {"even_pairs", "modular_arithmetic", "parity_check", "cycle_navigation"}
    assert {task.name for task in TASKS.values() if task.level == "regular"} == named
    named = {"modular_arithmetic_brackets", "reverse_string", "solve_equation", "stack_manipulation"}
    assert {task.name for task in TASKS.values() if task.level == "context-free"} == named
