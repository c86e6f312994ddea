// Products of a few rows with the matrices of a model, by vectors.

#include "cpu_panels.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace {

// Vectors across a panel, and rows that pass through it together: so many that the sums fit in the
// registers.
template <class T> struct Panel;
template <> struct Panel<float> {
    static constexpr int64_t VECTORS = 3, ROWS = LANES / 2;
};
template <> struct Panel<bfloat16> {
    static constexpr int64_t VECTORS = 2, ROWS = LANES * 3 / 4;
};
template <class T> constexpr int64_t WIDTH = LANES * Panel<T>::VECTORS;
// Rows that pass through a panel before the next one, as floats: they stay in the cache.
constexpr int64_t BLOCK = 256;

// Inputs, a power of two, after each of which lines of the next panel are asked for, a few at a time.
// bytes: of a panel, for one input. parts: that pass through the panel, each of which asks for some.
inline uint64_t step_of(int64_t bytes, int64_t parts) {
    constexpr int64_t LONGEST = 16, LINES = 6;
    int64_t step = std::max<int64_t>(1, LINE / bytes);
    // Rows that are one part wait for memory all the time.
    if (parts == 1) return step;
    while (step < LONGEST && 2 * step * bytes <= LINES * LINE * parts) step *= 2;
    return step;
}

// Outputs of R rows from one panel, [inputs, WIDTH], and its bias, if there is one, in rows of out
// that are `stride` apart.
template <class T, int64_t R>
void summed(const float *x, const T *panel, const T *bias, T *out, int64_t inputs, int64_t stride,
            Following following, uint64_t step) {
    constexpr int64_t VECTORS = Panel<T>::VECTORS;
    Vector sums[R][VECTORS];
#pragma GCC unroll 12
    for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int64_t j = 0; j < VECTORS; j++) sums[r][j] = Vector{};
    for (int64_t k = 0; k < inputs; k++) {
        if ((k & (step - 1)) == 0) following.fetch();
        Vector y[VECTORS];
        read_vectors<VECTORS>(panel + k * WIDTH<T>, y);
        for (int64_t j = 0; j < VECTORS; j++) hold(y[j]);
#pragma GCC unroll 12
        for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 3
            for (int64_t j = 0; j < VECTORS; j++) sums[r][j] += x[r * inputs + k] * y[j];
    }
    Vector more[VECTORS] = {};
    if (bias) read_vectors<VECTORS>(bias, more);
#pragma GCC unroll 12
    for (int64_t r = 0; r < R; r++) {
#pragma GCC unroll 3
        for (int64_t j = 0; j < VECTORS; j++) sums[r][j] += more[j];
        write_vectors<VECTORS>(out + r * stride, sums[r]);
    }
}

template <class T, int64_t... i>
constexpr auto summed_of(int64_t rows, std::integer_sequence<int64_t, i...>) {
    constexpr decltype(&summed<T, 1>) OF_ROWS[] = {summed<T, i + 1>...};
    return OF_ROWS[rows - 1];
}

inline const float *as_floats(const float *x, int64_t, std::vector<float> &) { return x; }

inline const float *as_floats(const bfloat16 *x, int64_t numbers, std::vector<float> &floats) {
    floats.resize(numbers);
    for (int64_t j = 0; j < numbers; j++) floats[j] = read(x[j]);
    return floats.data();
}

// As `product`.
template <class T>
void by_vectors(const T *x, const T *panels, const T *bias, T *out, int64_t rows, int64_t inputs,
                int64_t outputs, int threads) {
    constexpr int64_t ROWS = Panel<T>::ROWS, ACROSS = WIDTH<T>;
    constexpr auto UP_TO = std::make_integer_sequence<int64_t, ROWS>();
    threads = threads_for(inputs * outputs, threads);
    std::vector<float> floats;
    for (int64_t first = 0; first < rows; first += BLOCK) {
        const int64_t block = std::min(rows - first, BLOCK), parts = (block + ROWS - 1) / ROWS;
        const uint64_t step = step_of(ACROSS * sizeof(T), parts);
        const float *from = as_floats(x + first * inputs, block * inputs, floats);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t column = 0; column < outputs; column += ACROSS) {
            const T *panel = panels + column * inputs;
            const int64_t columns = std::min(outputs - column, ACROSS);
            // Of the last panel, which may be wider than what is left of the outputs.
            T last_bias[ACROSS] = {}, last[ROWS * ACROSS];
            const bool is_whole = columns == ACROSS;
            if (bias && !is_whole) std::copy_n(bias + column, columns, last_bias);
            const T *its_bias = !bias ? nullptr : is_whole ? bias + column : last_bias;
            for (int64_t i = 0; i < parts; i++) {
                const int64_t row = part(block, i, parts);
                const int64_t count = part(block, i + 1, parts) - row;
                T *to = out + (first + row) * outputs + column;
                Following following(panel, inputs * ACROSS * sizeof(T), i, parts,
                                    (inputs + step - 1) / step);
                summed_of<T>(count, UP_TO)(from + row * inputs, panel, its_bias,
                                           is_whole ? to : last, inputs,
                                           is_whole ? outputs : ACROSS, following, step);
                for (int64_t r = 0; r < count && !is_whole; r++)
                    std::copy_n(last + r * ACROSS, columns, to + r * outputs);
            }
        }
    }
}

}  // namespace

// panel: outputs of a panel; 0 where other products are faster.
#define PRODUCTS(T, Unit, is_fast)                                                                 \
    void product(const T *x, const T *panels, const T *bias, T *out, int64_t rows, int64_t inputs, \
                 int64_t outputs, int threads) {                                                   \
        by_vectors(x, panels, bias, out, rows, inputs, outputs, threads);                          \
    }                                                                                              \
    extern "C" int64_t panel_##T() { return is_fast ? WIDTH<T> : 0; }                              \
    extern "C" void packed_##T(const Unit *weight, Unit *panels, int64_t outputs, int64_t padded,  \
                               int64_t inputs, int threads) {                                      \
        packed<WIDTH<T>>(weight, panels, outputs, padded, inputs, threads);                        \
    }                                                                                              \
    extern "C" void product_##T(const T *x, const T *panels, const T *bias, T *out, int64_t rows,  \
                                int64_t inputs, int64_t outputs, int threads) {                    \
        product(x, panels, bias, out, rows, inputs, outputs, threads);                             \
    }

#if defined(__AVX2__)
constexpr bool HAS_VECTORS = true;
#else
constexpr bool HAS_VECTORS = false;
#endif
#if defined(__AVX512BF16__)
// oneDNN multiplies by them, two numbers a lane.
constexpr bool HAS_PAIRS = true;
#else
constexpr bool HAS_PAIRS = false;
#endif

PRODUCTS(float, uint32_t, HAS_VECTORS)
#ifndef TILES
PRODUCTS(bfloat16, uint16_t, HAS_VECTORS && !HAS_PAIRS)
#endif
