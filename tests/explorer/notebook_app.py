"""A marimo notebook with a view and a table's grid, and cells that print the chosen heads."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    import headwise

    return headwise, mo


@app.cell
def _(headwise, mo):
    shown = headwise.view("minilm", "The cat sat on the <b>mat</b>, because it was warm.")
    view = mo.ui.anywidget(shown)
    view  # noqa: B018 - what a cell ends in is shown
    return (view,)


@app.cell
def _(mo, view):
    mo.md(f"chosen: {view.widget.head}" if view.value else "")
    return


@app.cell
def _(headwise, mo):
    import pandas as pd

    places = {"stack": "", "layer": [0, 0, 1], "head": [0, 1, 0]}
    roles = [["positional"], [], ["sink", "broad"]]
    rows = headwise.HeadTable(
        pd.DataFrame({**places, "roles": roles, "first": [0.1, 0.2, 0.9]}), {}
    )
    table = mo.ui.anywidget(rows.view())
    table  # noqa: B018 - what a cell ends in is shown
    return (table,)


@app.cell
def _(mo, table):
    mo.md(f"row: {table.widget.head}" if table.value else "")
    return


if __name__ == "__main__":
    app.run()
