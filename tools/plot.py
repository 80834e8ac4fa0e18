#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws what `turnout sim --experiment` and `turnout plot` computed: plot.py DATA.json PICTURE.svg

Nothing is computed here; the same data give the same file. The picture has no background, and its text and
axes follow the reader's light or dark mode. Exit status 3: matplotlib is not installed.

DATA.json: {"format": 1, "plots": [PLOT, ...]}, drawn side by side. A PLOT has "title", "x_label", "y_label" and
one of these kinds:
  lines  "series": curves; "x_log", "y_log"; "brackets": differences between two of them at one x
  bars   horizontal; a point of a series is [length, row], "rows" are their names; "limits": lines across
  dots   a point of a series is [value, row]; several in one row are joined, the later the larger; a value of
         null: there is none, because the run failed
  grid   "darkness": rows of cells from 0 (nothing) to 1
"unit" says how values are written: "B" is bytes (KiB, MiB, GiB), "KB" the AQPS paper's (MB = 1000 KB).
"""
import io
import json
import math
import re
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(3)
matplotlib.use("svg")

# Written into the picture as "currentColor", which the style below sets.
INK = "#010203"
STYLE = ("svg{color:#1f2328}.shade{fill:#003f73}"
         "@media (prefers-color-scheme:dark){svg{color:#e6edf3}.shade{fill:#a5dcff}}")

matplotlib.rcParams.update({
    "svg.hashsalt": "turnout",   # names of elements follow from the data alone
    "svg.fonttype": "none",      # text stays text: small, and can be searched
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
})
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

# The palette of Okabe and Ito, which colour-blind readers can tell apart. A name has its colour, marker and line in
# every plot, so that pages can be laid side by side: (colour, marker, line, filled).
SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (5, 2)), (0, (1.2, 1.5)), (0, (6, 2, 1.5, 2))
STYLES = {
    "turnout": ("#d55e00", "D", SOLID, True),
    "aqps": ("#0072b2", "o", SOLID, True),
    "dc-rdma-od": ("#009e73", "s", DASHED, True),
    "rc-rdma-od": ("#cc79a7", "^", DASH_DOT, False),
    "rc-rdma-od, no budget": ("#e69f00", "v", DOTTED, False),
    "xrc-rdma-od": ("#56b4e9", "P", DASHED, False),
    "static:dc-sendrecv": ("#808080", "X", DOTTED, True),
    # Protocols of large messages.
    "auto": ("#d55e00", "D", SOLID, True),
    "put": ("#0072b2", "o", SOLID, True),
    "putnr": ("#56b4e9", "o", DASHED, False),
    "get": ("#009e73", "s", SOLID, True),
    "getcqe": ("#e69f00", "s", DASHED, False),
    "rput": ("#cc79a7", "^", DASH_DOT, True),
}
OTHERS = [("#56b4e9", "P", DASHED, True), ("#e69f00", "v", DOTTED, True), ("#808080", "X", DASH_DOT, True),
          ("#cc79a7", "*", DASHED, True), ("#009e73", "h", DOTTED, True)]


def style_of(name, taken):
    """Of a series; `aqps, paper` has that of `aqps`."""
    if name in STYLES:
        return STYLES[name]
    policy = name.split(",")[0]
    if policy not in STYLES and policy not in taken:
        taken[policy] = OTHERS[len(taken) % len(OTHERS)]
    return STYLES.get(policy) or taken[policy]


def plain(value, _position=None):
    return f"{value:g}"


def three_digits(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def binary(value, _position=None):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value /= 1024
    else:
        unit = "TiB"
    return f"{three_digits(value)} {unit}"


def of_paper(value, _position=None):
    for unit in ("KB", "MB", "GB"):
        if value < 1000:
            break
        value /= 1000
    else:
        unit = "TB"
    return f"{three_digits(value)} {unit}"


FORMATS = {"": plain, "B": binary, "KB": of_paper}


def powers(base, low, high):
    """The powers of `base` in that range, and the next ones outside of it."""
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    return [float(base) ** i for i in range(first, last + 1)]


def draw_bracket(axis, bracket, number, of, colour):
    """A difference at the right edge; the texts stand below each other to the right of the plot."""
    low, high = sorted((bracket["from"], bracket["to"]))
    x = 1.01 + 0.025 * number
    axis.plot([x - 0.012, x, x, x - 0.012], [low, low, high, high], color=colour, linewidth=1.4,
              transform=axis.get_yaxis_transform(), clip_on=False)
    axis.text(1.02 + 0.025 * of, 1.0 - 0.21 * number, bracket["text"], transform=axis.transAxes, va="top",
              fontsize=9)


def draw_lines(axis, plot):
    taken = {}
    for order, series in enumerate(plot["series"]):
        colour, marker, line, filled = style_of(series["name"], taken)
        alone = len(series["x"]) == 1
        if series["from_paper"]:  # thin, behind ours; a single value is a dash
            marker, line, filled = ("_" if alone else None), (0, (4, 3)), True
        axis.plot(series["x"], series["y"], linestyle="none" if alone else line, marker=marker,
                  label=series["name"], color=colour, markerfacecolor=colour if filled else "none",
                  markersize=22 if marker == "_" else 6 if filled else 10, markeredgewidth=1.6,
                  linewidth=1.0 if series["from_paper"] else 1.6,
                  zorder=2 + (3 if filled else 0) + (0 if series["from_paper"] else 1) + order / 100)
    if plot["x_log"]:
        axis.set_xscale("log", base=2)
        # Numbers of processes are written as they are, not as powers.
        points = sorted({x for series in plot["series"] for x in series["x"]})
        if len(points) <= 14:
            axis.set_xticks(points)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(plain))
        if len(points) > 8:
            axis.tick_params(axis="x", labelrotation=45)
    if plot["y_log"]:
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, 1.08 * max(y for series in plot["series"] for y in series["y"]))
    if plot.get("unit"):
        axis.yaxis.set_major_formatter(FuncFormatter(FORMATS[plot["unit"]]))
        axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(True, alpha=0.15)
    axis.set_axisbelow(True)
    brackets = plot.get("brackets", [])
    for number, bracket in enumerate(brackets):
        draw_bracket(axis, bracket, number, len(brackets), style_of(bracket["series"], taken)[0])
    axis.legend(loc="upper left" if plot["y_log"] else "lower left", handlelength=3.5)


def name_rows(axis, plot, named):
    rows = plot["rows"]
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_yticks(range(len(rows)), rows if named else [""] * len(rows))
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def draw_bars(axis, plot):
    taken = {}
    write = FORMATS[plot.get("unit", "")]
    lengths = [x for series in plot["series"] for x in series["x"]]
    most = max(lengths + [limit["at"] for limit in plot["limits"]])
    least = min(lengths + [limit["at"] for limit in plot["limits"]])
    if plot["x_log"]:
        axis.set_xscale("log", base=2)
        ticks = powers(4 if most / least < 1024 else 16, least / 16, most)
        axis.set_xlim(ticks[0], most * (most / ticks[0]) ** 0.2)  # room for the last number
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.set_xlim(0, most * 1.2)
    axis.xaxis.set_major_formatter(FuncFormatter(write))
    for series in plot["series"]:
        colour = style_of(series["name"], taken)[0]
        axis.barh(series["y"], series["x"], height=0.62, color=colour)
        for length, row in zip(series["x"], series["y"]):
            axis.annotate(write(length), (max([length] + [limit["at"] for limit in plot["limits"]]), row),
                          xytext=(6, 0), textcoords="offset points", va="center")
    for limit in plot["limits"]:
        axis.axvline(limit["at"], color=INK, linewidth=1.4, linestyle=DASHED)
        axis.annotate(limit["text"], (limit["at"], 1), xycoords=axis.get_xaxis_transform(), xytext=(0, 4),
                      textcoords="offset points", ha="center", va="bottom", fontsize=9)
    name_rows(axis, plot, True)
    axis.grid(True, axis="x", alpha=0.15)
    axis.set_axisbelow(True)


def ticks_of_ratios(low, high):
    if high / low < 3:
        return [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5]
    if high / low < 12:
        return [0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10]
    return [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


def draw_dots(axis, plot, named, low, high):
    taken = {}
    edge = 1.04 * (high / low) ** 0.03
    axis.set_xscale("log")
    axis.set_xlim(low / edge, high * edge)
    for row in range(0, len(plot["rows"]), 2):
        axis.axhspan(row - 0.5, row + 0.5, color=INK, alpha=0.06, linewidth=0)
    axis.axvline(1, color=INK, linewidth=1)
    lanes = len(plot["series"])
    for lane, series in enumerate(plot["series"]):
        colour, marker, _line, filled = style_of(series["name"], taken)
        shift = (lane - (lanes - 1) / 2) * 0.8 / lanes
        face = colour if filled else "none"
        axis.plot([], [], linestyle="none", marker=marker, color=colour, markerfacecolor=face, markersize=6.5,
                  markeredgewidth=1.3, label=series["name"])
        by_row = [[x for x, y in zip(series["x"], series["y"]) if y == row] for row in range(len(plot["rows"]))]
        for row, values in enumerate(by_row):
            ran = [x for x in values if x is not None]
            if len(ran) > 1:
                axis.plot([min(ran), max(ran)], [row + shift] * 2, color=colour, linewidth=1, alpha=0.6)
        most = max(len(values) for values in by_row)
        for number in range(most):
            points = [(values[number], row + shift) for row, values in enumerate(by_row) if number < len(values)]
            ran = [point for point in points if point[0] is not None]
            axis.plot([x for x, _y in ran], [y for _x, y in ran], linestyle="none", marker=marker, color=colour,
                      markerfacecolor=face, markersize=6.5 - 3.3 * (most - 1 - number) / max(most - 1, 1),
                      markeredgewidth=1.1)
            failed = [y for x, y in points if x is None]
            axis.plot([0.985 + 0.012 * (number - most + 1)] * len(failed), failed, linestyle="none", marker="x",
                      color=colour, markersize=4, transform=axis.get_yaxis_transform())
    ticks = [tick for tick in ticks_of_ratios(low, high) if low / edge <= tick <= high * edge]
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(plain))
    name_rows(axis, plot, named)
    axis.grid(True, axis="x", alpha=0.15)
    axis.set_axisbelow(True)


def shades():
    """Nothing for nothing at all: a single message beside a million can still be seen. The image becomes a mask (see
    below), so its opacity counts, not its colour."""
    return ListedColormap([(1, 1, 1, 0)] + [(1, 1, 1, 0.15 + 0.85 * i / 255) for i in range(1, 256)])


def enlarged(rows, pixels=800):
    """Viewers smooth a picture of few pixels when they scale it; this leaves them only the edges."""
    down, across = pixels // len(rows) + 1, pixels // len(rows[0]) + 1
    return [[cell for cell in row for _ in range(across)] for row in rows for _ in range(down)]


def draw_grid(axis, plot):
    extent = (plot["x_from"], plot["x_to"], plot["y_from"], plot["y_to"])
    image = axis.imshow(enlarged(plot["darkness"]), cmap=shades(), vmin=0, vmax=1, origin="lower",
                        aspect="auto", interpolation="none", extent=extent)
    if plot["y_to"] - plot["y_from"] <= 24:
        axis.set_yticks([y + 0.5 for y in range(int(plot["y_from"]), int(plot["y_to"]))],
                        [str(y) for y in range(int(plot["y_from"]), int(plot["y_to"]))])
        axis.tick_params(axis="y", length=0)
    scale = axis.figure.colorbar(image, ax=axis, pad=0.02)
    scale.set_ticks([tick["at"] for tick in plot["ticks"]],
                    labels=[tick["text"] for tick in plot["ticks"]])
    scale.set_label(plot["scale_label"], labelpad=6)
    scale.outline.set_visible(False)


def size_of(plots):
    kind = plots[0].get("kind", "lines")
    rows = len(plots[0].get("rows", []))
    if kind == "bars":
        return 7 * len(plots), 1.3 + 0.5 * rows
    if kind == "dots":
        lanes = len(plots[0]["series"])
        return 2.2 + (3.6 if len(plots) > 1 else 5) * len(plots), 1.6 + rows * max(0.3, 0.11 * lanes)
    return 7 * len(plots), 4.2


def masked(match):
    """An image, as the opacity of one colour, which the style sets."""
    name = "mask-" + match.group(1)
    return (f'<mask id="{name}" maskUnits="userSpaceOnUse" x="0" y="0" width="100%" height="100%">{match.group(0)}'
            f'</mask><rect class="shade" width="100%" height="100%" mask="url(#{name})"/>')


def write(figure, path):
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": "Turnout"})
    svg = text.getvalue().replace(INK, "currentColor")
    svg = svg.replace('<style type="text/css">', '<style type="text/css">' + STYLE, 1)
    svg = re.sub(r'<image [^>]*?id="(\w+)"[^>]*/>', masked, svg)
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)


def main(data_path, picture_path):
    with open(data_path, encoding="utf-8") as file:
        plots = json.load(file)["plots"]
    figure, axes = plt.subplots(1, len(plots), figsize=size_of(plots), squeeze=False)
    dots = [x for plot in plots if plot.get("kind") == "dots" for s in plot["series"] for x in s["x"] if x is not None]
    for number, (axis, plot) in enumerate(zip(axes[0], plots)):
        kind = plot.get("kind", "lines")
        if kind == "dots":
            draw_dots(axis, plot, number == 0, min(dots + [1]), max(dots + [1]))
        else:
            {"lines": draw_lines, "bars": draw_bars, "grid": draw_grid}[kind](axis, plot)
        axis.set_title(plot["title"], pad=18 if plot.get("limits") else 6)
        axis.set_xlabel(plot["x_label"])
        axis.set_ylabel(plot["y_label"])
    if plots[0].get("kind") == "dots":
        handles, names = axes[0][0].get_legend_handles_labels()
        if any(x is None for plot in plots for s in plot["series"] for x in s["x"]):
            handles += axes[0][0].plot([], [], linestyle="none", marker="x", markersize=4, color=INK)
            names.append("failed")
        figure.legend(handles, names, loc="lower center", ncol=min(len(names), 6))
        figure.tight_layout(rect=(0, 0.28 / figure.get_figheight(), 1, 1))
    else:
        figure.tight_layout()
    write(figure, picture_path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py DATA.json PICTURE.svg")
    main(sys.argv[1], sys.argv[2])
