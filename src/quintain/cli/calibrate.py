"""`quintain calibrate`: fit a scorer to people's labels, and show the error on labels that it was not fitted to."""

from __future__ import annotations

from quintain.cli.session import Use, plain_console, print_json, show_next_step, write_file
from quintain.records.text import printable
from quintain.tools.labels.calibration import calibration_picture, calibration_table


def run_calibrate(use: Use) -> int:
    """Fit, print and draw; returns the exit status: 0 fitted, 2 refused."""
    console = plain_console()
    services = use.services()
    fitted = use.call(services)
    if use.json_out:
        print_json(fitted)
    else:
        spearman = "unknown" if fitted.spearman is None else f"{fitted.spearman:.2f}"
        console.print(printable(f"{fitted.calibration_id}: {fitted.n_labels} labels"))
        console.print(f"Held-out error {fitted.error_before:.4f} -> {fitted.error_after:.4f}, Spearman {spearman}")
        for line in calibration_table(services, fitted.calibration_id).splitlines():
            console.print(printable(line))
        for warning in fitted.warnings:
            console.print(printable(f"! {warning}"), style="yellow")
        show_next_step(console, fitted)
    if (picture := use.own["picture"]) is not None:
        write_file(picture, calibration_picture(services, fitted.calibration_id), "the picture")
        if not use.json_out:
            console.print(printable(f"Picture: {picture}"))
    return 0
