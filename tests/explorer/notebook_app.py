"""A marimo notebook with a head view, and a cell that prints the chosen head."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    import headwise

    return headwise, mo


@app.cell
def _(headwise, mo):
    shown = headwise.view("minilm", "The cat sat on the mat <b>here</b>.", head="L3H1")
    view = mo.ui.anywidget(shown)
    view  # noqa: B018 - what a cell ends in is shown
    return (view,)


@app.cell
def _(mo, view):
    mo.md(f"chosen: {view.widget.head}" if view.value else "")
    return


if __name__ == "__main__":
    app.run()
