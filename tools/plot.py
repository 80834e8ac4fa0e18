#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws what `turnout sim --experiment` and `turnout plot` computed: plot.py DATA.json PICTURE.svg

Nothing is computed here; the same data give the same file. Exit status 3: there is no matplotlib.
"""
import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(3)
matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "turnout",   # names of elements follow from the data alone
    "svg.fonttype": "none",      # text stays text: small, and can be searched
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
})
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: E402

# A name has its colour in every plot, so that pages can be laid side by side.
COLOURS = {
    "aqps": "#c44e52",
    "turnout": "#8c3fa8",
    "dc-rdma-od": "#4c72b0",
    "rc-rdma-od": "#55a868",
    "static:dc-sendrecv": "#8c8c8c",
}
OTHERS = ["#dd8452", "#937860", "#64b5cd", "#ccb974", "#da8bc3"]


def colour(name, taken):
    """Of a series; `aqps (paper)` has that of `aqps`."""
    policy = name.split(" ")[0].rstrip(",")
    if policy not in COLOURS and policy not in taken:
        taken[policy] = OTHERS[len(taken) % len(OTHERS)]
    return COLOURS.get(policy) or taken[policy]


def plain(value, _position=None):
    return f"{value:g}"


def draw_lines(axis, plot):
    taken = {}
    for series in plot["series"]:
        style, marker = ("--", None) if series["from_paper"] else ("-", "o")
        axis.plot(series["x"], series["y"], style, marker=marker, label=series["name"],
                  color=colour(series["name"], taken))
    if plot["x_log"]:
        axis.set_xscale("log", base=2)
        # Numbers of processes are told as they are, not as powers.
        points = sorted({x for series in plot["series"] for x in series["x"]})
        if len(points) <= 12:
            axis.set_xticks(points)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(plain))
        if len(points) > 8:
            axis.tick_params(axis="x", labelrotation=45)
    if plot["y_log"]:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.grid(True, alpha=0.3)
    axis.legend(frameon=False)


def greys():
    """White is nothing at all: a single message beside a million can still be seen."""
    full = matplotlib.colormaps["Greys"]
    return ListedColormap([(1, 1, 1, 1)] + [full(0.15 + 0.85 * i / 255) for i in range(1, 256)])


def enlarged(rows, pixels=800):
    """Viewers smooth a picture of few pixels when they scale it; this leaves them only the edges."""
    down, across = pixels // len(rows) + 1, pixels // len(rows[0]) + 1
    return [[cell for cell in row for _ in range(across)] for row in rows for _ in range(down)]


def draw_grid(axis, plot):
    extent = (plot["x_from"], plot["x_to"], plot["y_from"], plot["y_to"])
    image = axis.imshow(enlarged(plot["darkness"]), cmap=greys(), vmin=0, vmax=1, origin="lower",
                        aspect="auto", interpolation="none", extent=extent)
    if plot["y_to"] - plot["y_from"] <= 24:
        axis.set_yticks([y + 0.5 for y in range(int(plot["y_from"]), int(plot["y_to"]))],
                        [str(y) for y in range(int(plot["y_from"]), int(plot["y_to"]))])
        axis.tick_params(axis="y", length=0)
    scale = axis.figure.colorbar(image, ax=axis, pad=0.02)
    scale.set_ticks([tick["at"] for tick in plot["ticks"]],
                    labels=[tick["text"] for tick in plot["ticks"]])
    scale.set_label(plot["scale_label"])
    scale.outline.set_visible(False)


def main(data_path, picture_path):
    with open(data_path, encoding="utf-8") as file:
        plots = json.load(file)["plots"]
    figure, axes = plt.subplots(1, len(plots), figsize=(7 * len(plots), 4.2), squeeze=False)
    for axis, plot in zip(axes[0], plots):
        {"lines": draw_lines, "grid": draw_grid}[plot.get("kind", "lines")](axis, plot)
        axis.set_title(plot["title"])
        axis.set_xlabel(plot["x_label"])
        axis.set_ylabel(plot["y_label"])
    figure.tight_layout()
    figure.savefig(picture_path, format="svg", metadata={"Date": None, "Creator": "Turnout"})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py DATA.json PICTURE.svg")
    main(sys.argv[1], sys.argv[2])
