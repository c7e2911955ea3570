#!/usr/bin/env python3
"""Draws runs of `weft load --csv` side by side: distributions of TTFT and TPOT, and TTFT over time.

    scripts/plot_load.py Weft=weft.csv llama.cpp=llama.csv -o docs/images/azure-load.svg
"""

import argparse
import csv
import math

COLORS = ["#2f6fde", "#d9822b", "#2c9a5b", "#b0489f"]
WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 250, 52, 34, 26


def read_run(path):
    """The rows of one run that have a TTFT, as (intended time, TTFT, TPOT) in seconds and ms."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    good = [r for r in rows if r["label"] == "ok"]
    return {"rows": len(rows), "ok": len(good),
            "time": [float(r["time_s"]) for r in good],
            "ttft": [1000 * float(r["ttft_s"]) for r in good],
            "tpot": [1000 * float(r["tpot_s"]) for r in good if float(r["tpot_s"] or 0) > 0]}


def panel(index, title, x_label, curves, log_x, log_y):
    """One chart: axes with ticks and a line for each curve."""
    left = index * (WIDTH + GAP) + LEFT
    width, height = WIDTH - LEFT, HEIGHT
    scale_x = math.log10 if log_x else float
    scale_y = math.log10 if log_y else float
    xs = [scale_x(x) for _, points in curves for x, _ in points]
    ys = [scale_y(y) for _, points in curves for _, y in points]
    low_x, high_x = min(xs), max(xs) + 1e-9
    low_y, high_y = (min(ys), max(ys)) if log_y else (0, max(ys))

    def at(x, y):
        return (left + (scale_x(x) - low_x) / (high_x - low_x) * width,
                TOP + height - (scale_y(y) - low_y) / (high_y - low_y) * height)

    out = [f'<text x="{left}" y="{TOP - 12}" font-weight="600">{title}</text>']
    for exponent in range(-2, 7):
        value = 10.0 ** exponent
        if log_x and low_x <= exponent <= high_x:
            x, _ = at(value, 10 ** low_y if log_y else low_y)
            out.append(f'<text x="{x:.1f}" y="{TOP + height + 15}" text-anchor="middle">{value:g}</text>'
                       f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + height}" stroke="#ddd"/>')
        if log_y and low_y <= exponent <= high_y:
            _, y = at(10 ** low_x if log_x else low_x, value)
            out.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
                       f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
    if not log_y:
        for share in (0, 0.25, 0.5, 0.75, 1):
            _, y = at(10 ** low_x if log_x else low_x, share)
            out.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{share:g}</text>'
                       f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
    if not log_x:
        for k in range(5):
            value = low_x + k * (high_x - low_x) / 4
            x, _ = at(value, 10 ** low_y if log_y else low_y)
            out.append(f'<text x="{x:.1f}" y="{TOP + height + 15}" text-anchor="middle">{value:.0f}</text>')
    out.append(f'<text x="{left + width}" y="{TOP + height + 30}" text-anchor="end" fill="#777">'
               f'{x_label}</text>')
    for color, points in curves:
        path = "".join(f"{'L' if i else 'M'}{at(x, y)[0]:.1f} {at(x, y)[1]:.1f}"
                       for i, (x, y) in enumerate(points))
        out.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>')
    return "".join(out)


def distribution(values):
    """Evenly spaced ranks of the values."""
    ordered = sorted(v for v in values if v > 0)
    n = len(ordered)
    return [(ordered[min(n - 1, i * n // 200)], i / 200) for i in range(201)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE")
    parser.add_argument("-o", "--out", required=True)
    arguments = parser.parse_args()
    named = [run.split("=", 1) for run in arguments.runs]
    runs = [(name, read_run(path)) for name, path in named]
    colors = dict(zip([name for name, _ in runs], COLORS))
    body = panel(0, "TTFT", "ms", [(colors[n], distribution(r["ttft"])) for n, r in runs], True, False)
    body += panel(1, "TPOT", "ms", [(colors[n], distribution(r["tpot"])) for n, r in runs], True, False)
    body += panel(2, "TTFT over the run, ms", "seconds",
                  [(colors[n], sorted(zip(r["time"], r["ttft"]))) for n, r in runs], False, True)
    total, bottom = 3 * (WIDTH + GAP) + LEFT, TOP + HEIGHT + 62
    for i, (name, run) in enumerate(runs):
        body += (f'<rect x="{LEFT + 260 * i}" y="{bottom - 20}" width="10" height="10" '
                 f'fill="{colors[name]}"/><text x="{LEFT + 15 + 260 * i}" y="{bottom - 11}">{name}: '
                 f'{run["ok"]} of {run["rows"]} answered</text>')
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {bottom}" '
                   f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" '
                   f'fill="#fff"/>{body}</svg>\n')


if __name__ == "__main__":
    main()
