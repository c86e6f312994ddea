// Norms, rotary embeddings and activations of a layer, each in one pass over its numbers; and whole
// layers.
//
// Arrays are contiguous, of float or bfloat16; sums are of floats. Each function takes the greatest
// number of threads last.

#include "cpu_numbers.h"

#include <cmath>

namespace {

template <class T> inline float rounded(float x) {
    T out;
    write(&out, x);
    return read(out);
}

template <class T> inline float inverse_rms(const T *x, int64_t size, float eps) {
    float sum = 0;
    for (int64_t j = 0; j < size; j++) sum += read(x[j]) * read(x[j]);
    return 1 / std::sqrt(sum / size + eps);
}

// hidden += more, if there is more; out = weight * hidden / rms(hidden). [rows, width]
template <class T>
void added_norm(T *hidden, const T *more, const T *weight, T *out, int64_t rows, int64_t width,
                float eps, int threads) {
    threads = threads_for(rows * width, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        T *x = hidden + i * width, *o = out + i * width;
        if (more) {
            const T *y = more + i * width;
            for (int64_t j = 0; j < width; j++) write(&x[j], read(x[j]) + read(y[j]));
        }
        float scale = inverse_rms(x, width, eps);
        for (int64_t j = 0; j < width; j++)
            write(&o[j], read(weight[j]) * rounded<T>(read(x[j]) * scale));
    }
}

// out = silu(gate) * up. [rows, width]; gate and up have rows of `stride` numbers.
template <class T>
void gated(const T *gate, const T *up, T *out, int64_t rows, int64_t width, int64_t stride,
           int threads) {
    threads = threads_for(rows * width, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const T *g = gate + i * stride, *u = up + i * stride;
        T *o = out + i * width;
        for (int64_t j = 0; j < width; j++)
            write(&o[j], read(g[j]) / (1 + exponential(-read(g[j]))) * read(u[j]));
    }
}

// A head, normed if eps >= 0, and rotated. [size]; sin has the sign of the half that it goes to.
template <class T>
inline void turned(const T *x, const T *cos, const T *sin, const T *weight, const T *swapped, T *out,
                   int64_t size, float eps) {
    float scale = eps < 0 ? 1 : inverse_rms(x, size, eps);
    int64_t half = size / 2;
    for (int64_t j = 0; j < half; j++)
        write(&out[j], scale * (read(x[j]) * read(cos[j]) * read(weight[j]) +
                                read(x[j + half]) * read(sin[j]) * read(swapped[j])));
    for (int64_t j = half; j < size; j++)
        write(&out[j], scale * (read(x[j]) * read(cos[j]) * read(weight[j]) +
                                read(x[j - half]) * read(sin[j]) * read(swapped[j])));
}

// heads: [tokens, num_queries + 2 num_keys, size]: queries, turned into `query`, and keys and
// values, of which head i of all goes to place `places[i]` of a layer's cache.
// cos, sin: [tokens, size]. weight, swapped: [num_queries + num_keys, size].
template <class T>
void stored(const T *heads, const T *cos, const T *sin, const T *weight, const T *swapped, T *query,
            T *keys, T *values, const int64_t *places, int64_t tokens, int64_t num_queries,
            int64_t num_keys, int64_t size, float eps, int threads) {
    int64_t num_heads = num_queries + 2 * num_keys;
    threads = threads_for(tokens * num_heads * size, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < num_heads; h++) {
            const T *x = heads + (t * num_heads + h) * size;
            int64_t key = h - num_queries, value = key - num_keys;
            if (value >= 0) {
                memcpy(values + places[t * num_keys + value] * size, x, size * sizeof(T));
                continue;
            }
            T *out = key < 0 ? query + (t * num_queries + h) * size
                             : keys + places[t * num_keys + key] * size;
            turned(x, cos + t * size, sin + t * size, weight + h * size, swapped + h * size, out,
                   size, eps);
        }
}

// A matrix as `packed` gives it, and a bias or null.
template <class T> struct Matrix {
    const T *panels, *bias;
};

// Params of a layer. weight, swapped: as of `stored`.
template <class T> struct Layer {
    const T *attention_norm, *mlp_norm, *weight, *swapped;
    Matrix<T> heads, after_attention, gate_and_up, down;
};

// Sizes of a model of `layers` layers, and of its cache, [layers, rows, num_keys, slots, size].
// inner: width of the MLP. eps, head_eps: as of `added_norm` and `stored`.
struct Shape {
    int64_t layers, width, inner, num_queries, num_keys, size, rows, slots;
    float eps, head_eps;
};

// Where the tokens are, and go to. cos, sin, places: as of `stored`; rows, lengths: as of `attended`.
template <class T> struct Tokens {
    const T *cos, *sin;
    const int64_t *rows, *lengths, *places;
    int64_t count;
};

// hidden, [tokens, width], after all layers but for what the last MLP adds: more, [tokens, width].
// scratch: as many numbers as `Stack.through` makes room for.
template <class T>
void through(const Layer<T> *layers, const Shape &shape, const Tokens<T> &tokens, T *keys, T *values,
             T *hidden, T *more, T *scratch, int threads) {
    const auto [num_layers, width, inner, num_queries, num_keys, size, rows, slots, eps, head_eps] =
        shape;
    const int64_t count = tokens.count, queries = num_queries * size;
    const int64_t all_heads = queries + 2 * num_keys * size;
    auto array = [&](int64_t numbers) {
        constexpr int64_t ALIGNED = 64;
        T *out = scratch;
        scratch += (count * numbers + ALIGNED - 1) / ALIGNED * ALIGNED;
        return out;
    };
    T *normed = array(width), *heads = array(all_heads), *query = array(queries);
    T *context = array(queries), *both = array(2 * inner), *active = array(inner);
    for (int64_t i = 0; i < num_layers; i++) {
        const Layer<T> &layer = layers[i];
        const int64_t at = i * rows * num_keys * slots * size;
        auto times = [&](const T *x, const Matrix<T> &matrix, T *out, int64_t in, int64_t outputs) {
            product(x, matrix.panels, matrix.bias, out, count, in, outputs, threads);
        };
        added_norm(hidden, i ? more : nullptr, layer.attention_norm, normed, count, width, eps,
                   threads);
        times(normed, layer.heads, heads, width, all_heads);
        stored(heads, tokens.cos, tokens.sin, layer.weight, layer.swapped, query, keys + at,
               values + at, tokens.places, count, num_queries, num_keys, size, head_eps, threads);
        attended(query, keys + at, values + at, context, tokens.rows, tokens.lengths, count,
                 num_queries, num_keys, slots, size, threads);
        times(context, layer.after_attention, more, queries, width);
        added_norm(hidden, more, layer.mlp_norm, normed, count, width, eps, threads);
        times(normed, layer.gate_and_up, both, width, 2 * inner);
        gated(both, both + inner, active, count, inner, 2 * inner, threads);
        times(active, layer.down, more, inner, width);
    }
}

}  // namespace

#define KERNELS(T)                                                                                 \
    void added_norm_##T(T *hidden, const T *more, const T *weight, T *out, int64_t rows,           \
                        int64_t width, float eps, int threads) {                                   \
        added_norm(hidden, more, weight, out, rows, width, eps, threads);                          \
    }                                                                                              \
    void gated_##T(const T *gate, const T *up, T *out, int64_t rows, int64_t width,                \
                   int64_t stride, int threads) {                                                  \
        gated(gate, up, out, rows, width, stride, threads);                                        \
    }                                                                                              \
    void stored_##T(const T *heads, const T *cos, const T *sin, const T *weight, const T *swapped, \
                    T *query, T *keys, T *values, const int64_t *places, int64_t tokens,           \
                    int64_t num_queries, int64_t num_keys, int64_t size, float eps, int threads) { \
        stored(heads, cos, sin, weight, swapped, query, keys, values, places, tokens, num_queries, \
               num_keys, size, eps, threads);                                                      \
    }                                                                                              \
    void attended_##T(const T *query, const T *keys, const T *values, T *out, const int64_t *rows, \
                      const int64_t *lengths, int64_t tokens, int64_t num_queries,                 \
                      int64_t num_keys, int64_t slots, int64_t size, int threads) {                \
        attended(query, keys, values, out, rows, lengths, tokens, num_queries, num_keys, slots,    \
                 size, threads);                                                                   \
    }                                                                                              \
    void through_##T(const Layer<T> *layers, const Shape *shape, const Tokens<T> *tokens, T *keys, \
                     T *values, T *hidden, T *more, T *scratch, int threads) {                     \
        through(layers, *shape, *tokens, keys, values, hidden, more, scratch, threads);            \
    }

extern "C" {
KERNELS(float)
KERNELS(bfloat16)
}
