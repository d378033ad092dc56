"""Characters that look like an ASCII letter, a digit or a mark, in the spirit of Unicode's UTS 39.

A line is a character and the code points that look like it, in hexadecimal, out of the table
`confusables.txt` (Unicode 17), with the other case of each letter. Capital I, l and 1 look alike,
and so do O and 0: they stand for one letter. Not covered are letters that look like another one
only with an accent or a stroke, letters that look alike without looking Latin, and pairs of ASCII
characters that some typefaces hardly tell apart, as 5 and S.
"""

TABLE = """
' 60 2b9 2bb 2bc 2bd 2be 2c8 2ca 2cb 2f4 55a 55d 5d9 5f3 7f4 7f5 144a 16cc 2018 2019 201b 2032
' 2035 a78b a78c 16f51 16f52
, 60d 66b 201a a4f9
- 2d7 6d4 2010 2012 2013 2043 2212 2796 2cba 2cbb
. 660 6f0 701 702 a4f8 a60e 10a50 1d16d
/ 1735 2041 2044 2215 2571 27cb 29f8 2cc6 2cc7 3033 30ce 31d3 4e3f 1d23a
2 1a7 1a8 3e8 3e9 14bf a644 a645 a6ef a75a a75b
3 1b7 21c 21d 25c 292 417 437 4e0 4e1 969 ae9 2c9c 2c9d 2cc4 2cc5 2ccc 2ccd a76a a76b a7ab 118aa
3 118ca 16f3b 1d206
4 13ce ab9e 118af 118cf
5 1bc 118bb 118db
6 3ec 411 431 13ee 2cd2 2cd3 2cdc 2cdd abbe 118d5
7 104d2 104fa 118c6 1d212
8 222 223 9ea a6a b03 1031a 1e8cb
9 9ed a67 b68 d6d 2cca 2ccb a76e a76f 118ac 118b6 118cc 118d6
a 251 391 3b1 410 430 13aa 15c5 237a 2c6d a4ee ab7a 102a0 16f40
b 184 185 392 3b2 412 42c 432 44c 13cf 13f4 13fc 1472 15af 15f7 1c80 2c82 2c83 a4d0 a7b4 a7b5 ab9f
b 10282 102a1 10301
c 421 441 1004 105a 13df 1c83 1d04 2ca4 2ca5 a4da abaf 102a2 10302 10415 1043d 1051c 118e9 118f2
c 1f74c
d 500 501 13a0 13e7 146f 15de 15ea a4d2 a4d3 ab70 abb7
e 395 3b5 415 435 4bc 4bd 13ac 212e 22ff 2d39 a4f0 ab32 ab7c 10286 118a6 118ae 118ce
f 191 192 3dc 3dd 554 584 15b4 1e9d a4dd a798 a799 ab35 10287 102a5 10525 118a2 118c2 1d213
g 18d 261 50c 50d 551 581 13c0 13f3 13fb 1d83 a4d6 a7ac ab90
h 397 3b7 41d 43d 4ba 4bb 540 570 13bb 13c2 157c 2c8e 2c8f a4e7 ab8b ab92 102cf
j 29d 37f 3f3 408 458 13ab 148d a4d9 a7b2 ab7b
k 39a 3ba 41a 43a 13e6 16d5 2c94 2c95 a4d7 abb6 10518
l 31 49 69 7c 131 196 1c0 269 26a 345 399 3b9 406 456 4c0 4cf 552 582 5c0 5d5 5df 627 661 6f1 7ca
l 13a5 13de 14aa 16c1 2223 2373 23fd 2c92 2c93 2cd0 2cd1 2d4f a4e1 a4f2 a646 a647 a7ae ab75 abae
l 1028a 10309 10320 1041b 10443 10526 118a3 118b2 118c3 118d2 16f16 16f28 1d22a 1e8c7
m 39c 3bc 3fa 3fb 41c 43c 13b7 15f0 16d6 2c98 2c99 a4df ab87 102b0 10311 11700 118e3
n 39d 548 54c 578 57c 2c9a 2c9b a4e0 10513
o 30 39f 3a3 3bf 3c2 3c3 3ed 41e 43e 555 585 5e1 647 665 6be 6c1 6d5 6f5 7c0 966 9e6 a66 ae6 b20
o b66 be6 c02 c66 c82 ce6 d02 d20 d66 d82 e50 ed0 101d 1040 10ff 12d0 17e0 1c82 1cbf 1d0f 1d11
o 2c9e 2c9f 2d54 3007 a4f3 ab3d 10292 102ab 10404 1042c 104c2 104ea 10516 114d0 118a8 118b5 118b7
o 118c8 118d7 118e0
p de fe 1bf 1f7 3a1 3c1 3f7 3f8 420 440 13e2 146d 2374 2ca2 2ca3 2cce 2ccf a4d1 abb2 10295
q 51a 51b 533 536 563 566 2d55
r 1a6 280 413 433 13a1 13b1 13d2 1587 1d26 2c84 2c85 a4e3 ab47 ab48 ab71 ab81 aba2 104b4 104dc
r 16f35 1d216
s 1bd 405 455 54f 57f d1f 13d5 13da a4e2 a731 aba5 abaa 10296 10420 10448 118a1 118c1 16f3a
t 3a4 3c4 422 442 13a2 1c84 1c85 22a4 27d9 2ca6 2ca7 a4d4 ab72 10297 102b1 10315 118bc 16f0a 1f768
u 1b2 28b 3c5 54d 57d 1200 144c 1d1c 222a 22c3 a4f4 a79e a79f ab4e ab52 104ce 104f6 118b8 118d8
u 16f42
v 3bd 474 475 5d8 667 6f7 13d9 142f 1d20 2228 22c1 2d38 a4e6 a6df aba9 1051d 11706 118a0 118c0
v 16f08 1d20d
w 19c 26f 428 448 460 461 51c 51d 531 561 13b3 13d4 1d21 2cbc 2cbd a4ea ab83 aba4 1170a 1170e
w 1170f 118e6 118ef
x d7 3a7 3c7 425 445 1541 157d 166d 166e 16b7 2573 292b 292c 2a2f 2cac 2cad 2d5d a4eb a7b3 ab53
x 10290 102b4 10317 10322 10527 118ec
y 194 263 28f 393 3a5 3b3 423 443 4ae 4af 10e7 13a9 13bd 1ca7 1d8c 1efe 1eff 2ca8 2ca9 a4ec ab5a
y ab79 ab8d 102b2 118a4 118dc 16f43
z 396 3b6 13c3 1d22 a4dc ab93 102f5 118a9 118c4 118c9 118e5
"""
