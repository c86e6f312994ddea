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

// e^x for |x| <= 87, without the branches of the library's, so that loops become vectors: x is
// n ln 2 + r, and e^r a polynomial with the coefficients of Cephes. Keeps NaN.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float n = __builtin_rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t power = uint32_t(int32_t(n) + 127) << 23;
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

// Floats of a vector, and rows of sums of two or three vectors that fit in the registers.
#if defined(__AVX512F__)
constexpr int64_t LANES = 16, ROWS = 8;
#else
constexpr int64_t LANES = 8, ROWS = 4;
#endif

// A vector, and one anywhere in an array of floats.
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
// The same of their bits.
typedef uint32_t WordVector __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// N vectors of floats from numbers that lie together. Of bfloat16, N is even: vectors come in pairs,
// one of the numbers at even places and one of those at odd places.
template <int64_t N> inline void read_vectors(const float *x, Vector *out) {
    for (int64_t i = 0; i < N; i++) out[i] = *reinterpret_cast<const Floats *>(x + i * LANES);
}

template <int64_t N> inline void read_vectors(const bfloat16 *x, Vector *out) {
    static_assert(N % 2 == 0);
    for (int64_t i = 0; i < N; i += 2) {
        const WordVector words = *reinterpret_cast<const Words *>(x + i * LANES);
        out[i] = (Vector)(words << 16);
        out[i + 1] = (Vector)(words & 0xffff0000);
    }
}

template <int64_t N> inline void write_vectors(float *x, const Vector *vectors) {
    for (int64_t i = 0; i < N; i++) *reinterpret_cast<Floats *>(x + i * LANES) = vectors[i];
}

template <int64_t N> inline void write_vectors(bfloat16 *x, const Vector *vectors) {
    static_assert(N % 2 == 0);
    // As in `write`.
    auto rounded = [](WordVector bits) { return bits + 0x7fff + ((bits >> 16) & 1); };
    for (int64_t i = 0; i < N; i += 2) {
        const WordVector even = rounded((WordVector)vectors[i]);
        const WordVector odd = rounded((WordVector)vectors[i + 1]);
        *reinterpret_cast<Words *>(x + i * LANES) = (even >> 16) | (odd & 0xffff0000);
    }
}

// Keeps a vector in its register: a compiler may read it again from memory at each use.
inline void hold(Vector &x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    asm volatile("" : "+x"(x));
#endif
}

// Of at most so many threads, those that work on so many numbers is worth; few are faster in one.
inline int threads_for(int64_t numbers, int threads) {
    constexpr int64_t ONE_THREAD = 1 << 15;
    return numbers > ONE_THREAD ? threads : 1;
}

// query, out: [tokens, num_queries, size]. keys, values: a layer's cache, [rows, num_keys, slots,
// size]; token t attends to the first `lengths[t]` slots of row `rows[t]`.
void attended(const float *query, const float *keys, const float *values, float *out,
              const int64_t *rows, const int64_t *lengths, int64_t tokens, int64_t num_queries,
              int64_t num_keys, int64_t slots, int64_t size, int threads);
void attended(const bfloat16 *query, const bfloat16 *keys, const bfloat16 *values, bfloat16 *out,
              const int64_t *rows, const int64_t *lengths, int64_t tokens, int64_t num_queries,
              int64_t num_keys, int64_t slots, int64_t size, int threads);

// out = x * matrix^T + bias, if there is a bias. x: [rows, inputs]. panels: the matrix, as packed.
// out: [rows, outputs].
void product(const float *x, const float *panels, const float *bias, float *out, int64_t rows,
             int64_t inputs, int64_t outputs, int threads);

void product(const bfloat16 *x, const bfloat16 *panels, const bfloat16 *bias, bfloat16 *out,
             int64_t rows, int64_t inputs, int64_t outputs, int threads);

// Those of bfloat16 are by the matrix unit where there is one.
#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define TILES
#endif
