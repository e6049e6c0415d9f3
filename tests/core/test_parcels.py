"""Parcels: finished blocks with cursors, and blocks whose rows are yet to come."""

import numpy as np

import penstock as ps
from penstock.core.rows import plain_context
from penstock.stages.base.direct import Direct


def test_a_block_that_was_begun_has_its_rows_and_cursors_once_its_job_has_run():
    rows = ps.from_arrays(np.arange(100.0)).shuffle(seed=2).batch(8).node
    route = rows.route(0)
    assert route is not None
    context = plain_context()
    direct = Direct(rows, route, context)
    begun = direct.begin((10, 13))
    assert begun.job.num_rows == 8 + 8 + 4
    begun.job.run()
    parcel = direct.end(begun)
    assert (parcel.size, parcel.cursor_after(0), parcel.cursor_after(2)) == (3, 10, 12)
    wanted = context.block(rows, 3)
    rows.read(slice(10, 13), wanted, context)
    found = [parcel.block.row(row)[0].tolist() for row in range(3)]
    assert found == [wanted.finish().row(row)[0].tolist() for row in range(3)]
    assert len(found[2]) == 4
