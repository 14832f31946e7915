"""Sizes of BERT models by name: of the models that were released, and short ones for some of them.

Attention heads are hidden/64 and the inner size is 4 x hidden in all models that were released with
the paper and with "Well-Read Students Learn Better" (Turc et al., 2019).
"""

# name: (layers, hidden size)
NAMED_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
SMALL_SIZES = [(layers, hidden) for layers in range(2, 13, 2) for hidden in (128, 256, 512, 768)]
"""Those of the 24 smaller models of "Well-Read Students Learn Better", its Table 1."""
SIZES = NAMED_SIZES | {
    f"{start}L-{layers}_H-{hidden}{end}": (layers, hidden)
    for layers, hidden in (*SMALL_SIZES, NAMED_SIZES["large"])
    for start in ("", "uncased_")
    for end in ("", f"_A-{hidden // 64}")
}
"""All names of sizes: also those of the uncased releases, such as "uncased_L-4_H-256_A-4"."""
SIZES_IN_WORDS = (
    f"{', '.join(NAMED_SIZES)}, or as releases are called, such as L-4_H-256 or "
    f"uncased_L-4_H-256_A-4 (L 2, 4, 6, 8, 10 or 12 with H 128, 256, 512 or 768; L-24_H-1024)"
)
ENGLISH_VOCABULARY = 30522
"""Tokens of the released uncased English vocabulary."""
