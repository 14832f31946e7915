"""Texts that a page must show as they are, and nothing but show."""

import json
import random
from typing import Any

MARKUP = [
    "<script>window.attacked=1</script>",
    "<img src=x onerror='window.attacked=1'>",
    '"><svg/onload=window.attacked=1>',
    "</textarea><script>window.attacked=1</script>",
    "</script><script>window.attacked=1//",
    "<iframe src='javascript:parent.attacked=1'></iframe>",
    "<a href=javascript:window.attacked=1>x</a>",
    "<style>*{display:none}</style>",
    "<!--",
    "]]>",
    "&lt;script&gt;&#x3c;img&#62;&amp;",
    "{{constructor.constructor('window.attacked=1')()}}",
    "${window.attacked=1}",
    "'; DROP TABLE x; --",
    "\\u003cscript\\u003e",
    "javascript:window.attacked=1",
    "%3Cscript%3E",
    "__proto__",
]
ODD = [
    "\x00",
    "\x07\x1b[31m\x7f",
    "\r\n\r\nHTTP/1.1 200 OK\r\n",
    "\u202egnp.exe\u202c",
    "\u2066\u2067\u2068\u2069\u200f\u061c",
    "\ud800",
    "\udfff\ud83d",
    "\ufeff\ufffe\uffff\ufdd0",
    "\u2028\u2029\x85",
    "e" + "\u0301" * 40,
    "😀👨‍👩‍👧",
    "漢字 한국어 עברית العربية",
    "",
    " \t\n",
    "[MASK]",
    "[CLS] [SEP] [PAD]",
    "##a",
    "the tower was in paris",
]


def hostile_texts(count: int, seed: int = 0) -> list[str]:
    """So many, each once: the lists above alone, then mixtures of them, some of them long."""
    draw = random.Random(seed)
    texts = dict.fromkeys([*MARKUP, *ODD])
    while len(texts) < count:
        parts = draw.choices([*MARKUP, *ODD], k=draw.randrange(1, 6))
        parts.insert(draw.randrange(len(parts)), chr(draw.randrange(0x11_0000)))
        parts *= draw.choice([40, 400]) if draw.random() < 0.005 else 1
        texts["".join(draw.sample(parts, len(parts)))] = None
    return list(texts)[:count]


def broken(request: Any, most_bytes: int, draw: random.Random) -> bytes:
    """A request as it shouldn't be sent: cut off, in other bytes than JSON's, too long."""
    body = json.dumps(request).encode()
    place = draw.randrange(len(body))
    return draw.choice(
        [
            body[:place],
            body + body,
            body.ljust(most_bytes + 1),
            body.decode().encode("utf-16"),
            b"[" * draw.randrange(20_000) + body,
            # Right, but for halves of surrogate pairs, which UTF-8 has not.
            json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            *(
                body[:place] + byte + body[place:]
                for byte in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x00", b"\\", b'"')
            ),
        ]
    )
