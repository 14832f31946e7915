"""The picture in modeling/serving/README.md: models side by side, asked the same.

    python -m tests.modeling.serving.page.picture output/reviews/export,output/entities/export \\
      modeling/serving/page.png "Frances McDormand is a marvel in this film."
"""

import io
import pathlib
import sys
import tempfile

import PIL.Image

from modeling.serving.page.models import load_page_models
from tests.modeling.serving.page.chromium import (
    CONTROL,
    DONE,
    END_OF_CHORD,
    ENTER,
    Chromium,
    open_page,
)
from tests.modeling.serving.page.conftest import serving

SIZE = (900, 560)


def main(models: str, picture: str, *texts: str) -> None:
    with (
        tempfile.TemporaryDirectory() as profile,
        Chromium(pathlib.Path(profile)) as browser,
        serving(load_page_models(models.split(","))) as server,
    ):
        open_page(browser, server.address, SIZE)
        for place, text in enumerate(texts):
            browser.script(f"document.querySelector('#field{place}').select()")
            browser.keys(text)
        # The first answer to a text of new length takes longer.
        for _ in range(3):
            browser.keys(CONTROL + ENTER + END_OF_CHORD)
            browser.until(DONE)
        shot = browser.screenshot(pathlib.Path(picture))
    # As many colours as are seen, in a third of the bytes; matplotlib needs Pillow itself.
    PIL.Image.open(io.BytesIO(shot)).convert("RGB").quantize(96).save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
