"""Plots as SVG: curves, and speed against quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

# Colours that colour-blind readers can distinguish (Okabe and Ito), each with its own dash and marker.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")


def _figure(width: float, height: float) -> Any:
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Text stays text, and equal figures give equal files.
    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "fullrank"
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".svg.part")
    figure.savefig(part, format="svg", metadata={"Date": None})
    part.replace(path)
    return path


Curve = tuple[Sequence[float], Sequence[float]]
"""x and y of one line."""


def curves(
    path: Path,
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    x: str,
    y: str,
) -> Path:
    """Plot one panel per title and one line per name, alike in all."""
    figure = _figure(max(4.6, 3.8 * len(panels)), 3.8)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for axes, (title, lines) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True
    ):
        for name, (xs, ys) in lines.items():
            i = names.index(name)
            colour = _COLOURS[i % len(_COLOURS)]
            axes.plot(
                xs,
                ys,
                color=colour,
                linestyle=_DASHES[i % len(_DASHES)],
                marker=_MARKS[i % len(_MARKS)],
                markersize=4,
                label=name,
            )
        axes.set(xlabel=x, ylabel=y)
        axes.set_title(title, fontsize=10)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=8)
    return _save(figure, path)


@dataclass(frozen=True)
class Frontier:
    """One panel: the name of the measure, and for each system (speed, quality, is it ours)."""

    measure: str
    systems: Mapping[str, tuple[float, float, bool]]


def unbeaten(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other exceeds in one coordinate without losing in the other, by x."""
    found: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):
        if not found or y > found[-1][1]:
            found.append((x, y))
    return found[::-1]


def frontier(path: Path, panels: Mapping[str, Frontier], *, x: str) -> Path:
    """Plot speed on a log scale against quality, a named point per system; a line joins our unbeaten ones."""
    figure = _figure(6.0 * len(panels), 4.6)
    drawn = np.atleast_1d(figure.subplots(1, len(panels)))
    labels: list[list[Any]] = []
    for axes, (title, panel) in zip(drawn, panels.items(), strict=True):
        labels.append([])
        for is_ours, colour, mark in ((False, "#555555", "o"), (True, _COLOURS[0], "s")):
            named = {n: (s, q) for n, (s, q, own) in panel.systems.items() if own is is_ours}
            if named:
                axes.scatter(*zip(*named.values(), strict=True), color=colour, marker=mark, s=26)
            labels[-1] += [
                axes.annotate(
                    name, point, (4, 4), textcoords="offset points", fontsize=7, color=colour
                )
                for name, point in named.items()
            ]
            if is_ours and named:
                axes.plot(*zip(*unbeaten(named.values()), strict=True), color=colour, linewidth=1)
        axes.set_xscale("log")
        axes.set(xlabel=x, ylabel=panel.measure)
        axes.margins(x=0.3, y=0.08)
        axes.set_title(title, fontsize=10)
        axes.grid(color="#dddddd", linewidth=0.6)
    for label in chain.from_iterable(labels):
        label.set_in_layout(False)
    figure.draw_without_rendering()
    for axes, named_points in zip(drawn, labels, strict=True):
        _separate(axes, named_points)
    return _save(figure, path)


def _separate(axes: Any, labels: Iterable[Any]) -> None:
    """Put each label at a corner of its point, inside the axes and clear of earlier labels if one of them is."""
    corners = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    frame = axes.get_window_extent()
    placed: list[Any] = []
    for label in labels:
        for x, y in (*corners, corners[0]):
            label.set_position((4 * x, 4 * y))
            label.set_horizontalalignment("left" if x > 0 else "right")
            label.set_verticalalignment("bottom" if y > 0 else "top")
            box = label.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            if inside and not any(box.overlaps(other) for other in placed):
                break
        placed.append(box)
