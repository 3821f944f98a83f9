"""Characters outside ASCII that look like one inside it.

Taken from ``confusables.txt`` of Unicode Technical Standard 39 (Unicode License v3): every single character whose
look-alike is one printable ASCII character. Those that NFKC changes, and those that do not show, are left out:
:func:`bascule.core.naming.check_remote_name` refuses them anyway.
"""

from __future__ import annotations

from functools import cache

_CODES = """
d7 131 184 18d 196 1a6-1a7 1b7 1bc-1bd 1c0 1c3 21c 222-223 241 251 261 263 269-26a 26f 28b 28f 294 2b9 2bb-2be
2c2-2c4 2c6 2c8 2ca-2cb 2d0 2d7 2f4 2f8 37f 391-392 395-397 399-39a 39c-39d 39f 3a1 3a4-3a5 3a7 3b1 3b3 3b9 3bd
3bf 3c1 3c3 3c5 3dc 3e8 3f3 3fa 405-406 408 410 412 415 417 41a 41c-41e 420-423 425 42c 430-431 433 435 43e
440-441 443 445 455-456 458 461 474-475 4ae-4af 4bb 4bd 4c0 4cf 4e0 501 50c 51b-51d 54d 54f 555 55a 55d 561 563
566 570 578 57c-57d 581 584-585 589 6f0-6f1 6f5 6f7 903 966 97d 9e6 9ea 9ed a66-a67 a6a a83 ae6 b03 b20 b66 b68
be6 c02 c66 c82 ce6 d02 d20 d66 d6d d82 e50 ed0 101d 1040 10e7 10ff 1200 12d0 13a0-13a2 13a5 13a9-13ac 13ae 13b3
13b7 13bb 13bd 13c0 13c2-13c3 13ce-13cf 13d2 13d4-13d5 13d9-13da 13de-13df 13e2 13e6-13e7 13ee 13f3-13f4 1400
142f 1433 1438 144a 144c 146d 146f 1472 148d 14aa 14bf 1541 157c-157d 1587 15af 15b4 15c5 15de 15ea 15f0 15f7
166d-166e 16b2 16b7 16c1 16cc 16d5-16d6 16ec-16ed 1735 1803 1809 1d04 1d0f 1d11 1d1c 1d20-1d22 1d26 1d83 1d8c
1e9d 1eff 2010 2012-2013 2018-201b 2032 2035 2039-203a 2041 2043-2044 204e 2053 205a 212e 2212 2215-2217 2223
2228 222a 2236 223c 22a4 22c1 22c3 22ff 2373-2374 237a 23fd 2571 2573 2768-2769 276e-276f 2772-2775 2795-2796
27cb 27cd 27d9 292b-292c 29f5 29f8-29f9 2a2f 2c85 2c8e 2c92 2c94 2c98 2c9a 2c9e-2c9f 2ca2-2ca6 2ca8 2cac 2cba
2cc6 2cca 2ccc 2cd0 2cd2 2d38-2d39 2d4f 2d51 2d54-2d55 2d5d 2e40 3007 3014-3015 3033 30a0 30ce 31d3-31d4 4e36
4e3f a4d0-a4d4 a4d6-a4d7 a4d9-a4da a4dc-a4dd a4df-a4e3 a4e6-a4e7 a4ea-a4ec a4ee a4f0 a4f2-a4f4 a4f8-a4f9 a4fd
a4ff a60e a644 a647 a6df a6eb a6ef a731 a75a a76a a76e a778 a789 a78c a798-a799 a79f a7ab a7b2-a7b4 ab32 ab35
ab3d ab47-ab48 ab4e ab52 ab5a ab75 ab81 ab83 ab93 aba9-abaa abaf fd3e-fd3f 10282 10286-10287 1028a 10290 10292
10295-10297 1029b 102a0-102a2 102a5 102ab 102b0-102b2 102b4 102cf 102f5 10301-10302 10309 10311 10315 10317
1031a 1031f-10320 10322 10404 10415 1041b 10420 1042c 1043d 10448 104b4 104c2 104ce 104d2 104ea 104f6 10513
10516 10518 1051c-1051d 10525-10527 114d0 11706 1170a 1170e-1170f 118a0 118a2-118a4 118a6 118a9 118ac
118ae-118af 118b2 118b5 118b8 118bb-118bc 118c0-118c4 118c6 118c8 118ca 118cc 118d5-118d8 118dc 118e0
118e5-118e6 118e9 118ec 118ef 118f2 16f08 16f0a 16f16 16f28 16f35 16f3a-16f3b 16f3f-16f40 16f42-16f43
16f51-16f52 1d114 1d16d 1d206 1d20d 1d20f 1d212-1d213 1d216 1d22a 1d236-1d237 1d23a-1d23b 1f74c 1f768
"""


@cache
def lookalikes() -> frozenset[str]:
    """Return the characters."""
    return frozenset(chr(code) for run in _CODES.split() for code in _codes(run))


def _codes(run: str) -> range:
    first, _, last = run.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)
