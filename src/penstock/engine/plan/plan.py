"""The plan: how large blocks are, how many are made ahead, by how many threads, in how many bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core.rows import Flow, Node, Rows, rows_per_block
from penstock.core.system import usable_cores
from penstock.engine.functions.trays import function_nodes, shared_nbytes
from penstock.engine.plan.options import Options
from penstock.memory import default_budget, process_ledger
from penstock.stages.base.segment import Segment, as_flow

BLOCK_NBYTES = 1 << 21  # Large enough to be handed over at no cost, small enough for a CPU cache.
# Of rows that native jobs read, as TFRecords: a job works in a room that stays in the cache, whatever the size of its
# block, and Python takes 0.2 ms a block besides. Lines of text become objects in the consumer's cache.
_JOB_NBYTES = 1 << 23
_LINES_NBYTES = 1 << 22
_PAGES_NBYTES = 1 << 13  # Each buffer is rounded up to whole pages.
_LEAST_BLOCK = 1 << 12  # A smaller block takes a page all the same.
_MOST_AHEAD = 64
# Of rows that are read from storage: a thread that loads a piece of the next window makes no block meanwhile.
_MORE_AHEAD = 3
_SMALL_BLOCK = 1 << 18  # Below this, handing blocks over begins to cost.


@dataclass(frozen=True, slots=True)
class Choice:
    """How much a stream could hold: blocks that are made ahead, their bytes, and trays."""

    ahead: int
    block_nbytes: int
    trays: int
    """Pieces of memory that each function shares with its processes; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a chain is run. It holds no thread, no file and no memory."""

    node: Node
    flow: Flow
    budget: int
    block_nbytes: int
    block_rows: int
    threads: int
    ahead: int
    """Blocks made before they are asked for."""
    cached: int
    """Bytes of caches in memory that this stream would fill; they outlive the stream."""
    need: int
    """The smallest budget that would do."""
    total: int
    """Bytes it will hold at most, besides `cached`."""
    why: str
    scratch: str | None = None
    processes: int | None = None
    """How many processes run each function; None is decided by measurement when the stream opens."""
    trays: int = 0
    """How many pieces of memory, of a block each, every function of these processes shares with them."""
    is_tuned: bool = False
    """Whether threads and blocks ahead may be raised while it runs: not if the user set or the budget limited them."""
    retries: int = 0
    max_errors: int | None = None
    remote_cache: int = 0
    """The most bytes of remote files that are kept on this machine."""
    choices: tuple[Choice, ...] = ()
    """What it was chosen from, the largest first."""
    is_watched: bool = False
    """Whether what it does is shown on the live page."""

    @property
    def is_threaded(self) -> bool:
        """Whether blocks are made beside the consumer."""
        return self.threads > 0 and self.ahead > 0


def make_plan(node: Node, options: Options) -> Plan:
    """Return the plan for a chain; it is the largest that the budget allows."""
    flow = as_flow(node)
    is_set = options.threads is not None or options.depth is not None
    budget = options.memory
    if budget is None:
        budget = default_budget(own_nbytes=process_ledger.mapped)
    threads, why = _threads(options, node)
    cached = sum(node.cache_nbytes().values())
    processes = options.processes or 0
    least = Choice(0 if threads == 0 else 1, _LEAST_BLOCK, min(1, processes))
    smallest = chosen_nbytes(node, flow, least)
    largest = _largest_block(node)
    full = _ahead(options, node, largest, threads)
    powers = (largest // _LEAST_BLOCK).bit_length()
    sizes = [largest >> power for power in range(powers)]
    # First fewer blocks ahead (two also hold one window of a shuffle and a half instead of two), then smaller blocks,
    # then one at a time, which also holds one window. The order of the rows must never depend on this choice.
    pairs = [(ahead, largest) for ahead in range(full, 1, -1)]
    pairs += [(min(full, 2), size) for size in sizes if size >= _SMALL_BLOCK]
    pairs += [(min(full, 1), size) for size in sizes]
    choices = [Choice(*one, num_trays(processes, min(threads, one[0]))) for one in pairs]
    if not is_set:
        choices[0] = replace(choices[0], trays=num_trays(processes, None))
    chosen = choose(node, flow, budget, choices)
    choice = choices[chosen]
    ahead, block_nbytes = choice.ahead, choice.block_nbytes
    total = chosen_nbytes(node, flow, choice)
    if chosen:
        why = "as large as the budget allows"
    return Plan(
        node=node,
        flow=flow,
        budget=budget,
        block_nbytes=block_nbytes,
        block_rows=rows_per_block(node, block_nbytes),
        threads=min(threads, ahead),
        ahead=ahead,
        cached=cached,
        need=min(smallest, total) + cached,
        total=max(total, smallest) if total > budget - cached else total,
        why=why,
        scratch=options.scratch,
        processes=options.processes,
        trays=choice.trays,
        is_tuned=not is_set and chosen == 0,  # 0: the budget did not limit it.
        retries=options.retries or 0,
        max_errors=options.max_errors,
        remote_cache=options.remote_cache or 0,
        choices=tuple(choices),
        is_watched=bool(options.watch),
    )


def num_trays(processes: int, threads: int | None) -> int:
    """Return how many trays `processes` can make use of: one at work in each, two being filled or emptied.

    No thread has more than one; None is any number of threads.
    """
    if not processes:
        return 0
    return processes + 2 if threads is None else min(processes + 2, max(1, threads))


def choose(node: Node, flow: Flow, budget: int, choices: Sequence[Choice]) -> int:
    """Return the number of the largest choice that the budget allows, or else of the smallest."""
    caches = node.cache_nbytes().values()
    # A cache of a flow (0: not known) grows as rows come; it gets the memory that blocks leave over. So blocks
    # get half at most.
    room = budget - sum(caches) - sum(node.kept_nbytes().values())
    room = room // 2 if 0 in caches else room
    for number, choice in enumerate(choices):
        if chosen_nbytes(node, flow, choice) <= room:
            return number
    return len(choices) - 1


def chosen_nbytes(node: Node, flow: Flow, choice: Choice) -> int:
    """Return the bytes that a stream holds at most: its blocks, and what its functions share with their processes."""
    nbytes = total_nbytes(flow, choice.block_nbytes, choice.ahead)
    if choice.trays:
        functions = function_nodes(node)
        nbytes += sum(shared_nbytes(one, choice.block_nbytes, choice.trays) for one in functions)
    return nbytes


def _threads(options: Options, node: Node) -> tuple[int, str]:
    if options.depth == 0:
        return 0, "prefetch(0): blocks are made when they are asked for"
    if options.threads is not None:
        return options.threads, f"threads={options.threads} by with_options"
    cores = usable_cores()
    if cores > 1 and node.is_varying and _is_job(node):
        # To make objects of lines takes longer than to read them: more threads would only be in the consumer's way.
        return cores - 1, f"a thread for each of {cores} cores but one, which makes text of lines"
    return cores, f"a thread for each of {cores} cores"


def _is_job(node: Node) -> bool:
    """Return whether blocks of these rows are read by native jobs."""
    return isinstance(node, Rows) and node.num_rows > 0 and node.defers(slice(0, 1))


def _largest_block(node: Node) -> int:
    if not _is_job(node):
        return BLOCK_NBYTES
    return _LINES_NBYTES if node.is_varying else _JOB_NBYTES


def _ahead(options: Options, node: Node, block_nbytes: int, threads: int) -> int:
    if threads == 0:
        return 0
    if options.depth is not None:
        blocks = -(-options.depth // rows_per_block(node, block_nbytes))
        return max(1, min(_MOST_AHEAD, blocks))
    is_read = isinstance(node, Rows) and not node.is_in_memory and not node.calls_functions
    return threads + 1 + (_MORE_AHEAD if is_read else 0)


def total_nbytes(flow: Flow, block_nbytes: int, ahead: int) -> int:
    """Return the bytes that a flow holds at most, with blocks of `block_nbytes`, so many of them ahead."""
    pages = _PAGES_NBYTES * (ahead + 2) * (1 + _depth(flow))
    return flow.holds_nbytes(block_nbytes, ahead) + pages


def _depth(node: Node) -> int:
    if isinstance(node, Segment):
        node = node.rows
    own = 1 if isinstance(node, Flow | Rows) else 0
    return own + max((_depth(child) for child in node.inputs), default=0)
