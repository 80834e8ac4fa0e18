#!/usr/bin/env python3
"""Draws the plots of an experiment: plot.py DATA.json PICTURE.svg

DATA.json is what `turnout sim --experiment` writes. Exit status 3: there is no matplotlib.
"""
import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(3)
matplotlib.use("svg")
# The same data give the same file.
matplotlib.rcParams["svg.hashsalt"] = "turnout"
import matplotlib.pyplot as plt  # noqa: E402


def main(data_path: str, picture_path: str) -> None:
    with open(data_path, encoding="utf-8") as file:
        plots = json.load(file)["plots"]
    figure, axes = plt.subplots(1, len(plots), figsize=(7 * len(plots), 4.5), squeeze=False)
    for axis, plot in zip(axes[0], plots):
        for series in plot["series"]:
            style = "--" if series["from_paper"] else "-"
            marker = None if series["from_paper"] else "o"
            axis.plot(series["x"], series["y"], style, marker=marker, label=series["name"])
        axis.set_title(plot["title"])
        axis.set_xlabel(plot["x_label"])
        axis.set_ylabel(plot["y_label"])
        if plot["x_log"]:
            axis.set_xscale("log", base=2)
        if plot["y_log"]:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.grid(True, alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(picture_path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py DATA.json PICTURE.svg")
    main(sys.argv[1], sys.argv[2])
