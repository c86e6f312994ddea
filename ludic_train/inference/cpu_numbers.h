// Numbers of the two types that the kernels know.

#pragma once

#include <cstdint>
#include <cstring>

struct bfloat16 {
    uint16_t bits;
};

inline float read(float x) { return x; }

inline float read(bfloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

inline void write(float *at, float x) { *at = x; }

inline void write(bfloat16 *at, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    // To the nearest, and to the even one of two. NaN stays NaN: processors make it with zeros in
    // the lower half, and it has those of its bfloat16 otherwise.
    at->bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
