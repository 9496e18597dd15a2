"""Writes the pictures of the web page in docs/images, from the screenshots that `make browser` leaves in build/browser.

Run as `python -m scripts.ui_pictures`. Colours are reduced to a palette of 64, which keeps each picture below `MOST_KB`.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
SCREENSHOTS = ROOT / "build" / "browser"
IMAGES = ROOT / "docs" / "images"
SHOWN = ("light-overview", "dark-job", "light-run", "light-comparison")
MOST_KB = 150


def main() -> None:
    """Reduce the screenshots and report their sizes."""
    missing = [name for name in SHOWN if not (SCREENSHOTS / f"{name}.png").is_file()]
    if missing:
        raise SystemExit(f"expected screenshots in build/browser, got none of {', '.join(missing)}; run make browser")
    IMAGES.mkdir(exist_ok=True)
    for name in SHOWN:
        target = IMAGES / f"page-{name}.png"
        with Image.open(SCREENSHOTS / f"{name}.png") as picture:
            reduced = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
            reduced.save(target, optimize=True)
        size = target.stat().st_size / 1024
        if size > MOST_KB:
            raise SystemExit(f"expected {target.name} of at most {MOST_KB} KB, got {size:.0f} KB; reduce its colours")
        print(f"{target.name}: {size:.0f} KB")


if __name__ == "__main__":
    main()
