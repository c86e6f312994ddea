// Numbers of the two types that the kernels know, and what the sources share.

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

// Floats of a vector, and rows of sums of two or three vectors that fit in the registers.
#if defined(__AVX512F__)
constexpr int64_t LANES = 16, ROWS = 8;
#else
constexpr int64_t LANES = 8, ROWS = 4;
#endif

// Anywhere in arrays of floats.
typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// Of at most so many threads, those that work on so many numbers is worth; few are faster in one.
inline int threads_for(int64_t numbers, int threads) {
    constexpr int64_t ONE_THREAD = 1 << 15;
    return numbers > ONE_THREAD ? threads : 1;
}

// out = x * matrix^T + bias, if there is a bias. x: [rows, inputs]. panels: the matrix, as packed.
// out: [rows, outputs].
void product(const float *x, const float *panels, const float *bias, float *out, int64_t rows,
             int64_t inputs, int64_t outputs, int threads);

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define TILES
void product(const bfloat16 *x, const bfloat16 *panels, const bfloat16 *bias, bfloat16 *out,
             int64_t rows, int64_t inputs, int64_t outputs, int threads);
#endif
