// Norms, rotary embeddings, activations and attention of a layer, each in one pass over its numbers;
// and whole layers.
//
// Arrays are contiguous, of float or bfloat16; sums are of floats. Each function takes the greatest
// number of threads last.

#include "cpu_numbers.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

constexpr int64_t LARGEST_HEAD = 512;

template <class T> inline float rounded(float x) {
    T out;
    write(&out, x);
    return read(out);
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
    int32_t power = (int32_t(n) + 127) << 23;
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
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

// Attention of one query, [size], to `length` keys and values: out, [size].
template <class T, int64_t SIZE>
inline void attended_one(const T *query, const T *keys, const T *values, T *out, float *weights,
                         int64_t length, int64_t any_size) {
    // A size that the compiler knows lets it keep a head in registers.
    const int64_t size = SIZE ? SIZE : any_size;
    float q[SIZE ? SIZE : LARGEST_HEAD], sums[SIZE ? SIZE : LARGEST_HEAD];
    for (int64_t d = 0; d < size; d++) {
        q[d] = read(query[d]);
        sums[d] = 0;
    }
    float greatest = -INFINITY, total = 0;
    for (int64_t s = 0; s < length; s++) {
        float score = 0;
        for (int64_t d = 0; d < size; d++) score += q[d] * read(keys[s * size + d]);
        weights[s] = score;
    }
    for (int64_t s = 0; s < length; s++) greatest = weights[s] > greatest ? weights[s] : greatest;
    for (int64_t s = 0; s < length; s++) {
        weights[s] = exponential(weights[s] - greatest);
        total += weights[s];
    }
    for (int64_t s = 0; s < length; s++)
        for (int64_t d = 0; d < size; d++) sums[d] += weights[s] * read(values[s * size + d]);
    for (int64_t d = 0; d < size; d++) write(&out[d], sums[d] / total);
}

// Columns of a block of products.
constexpr int64_t COLUMNS = 2 * LANES;

inline int64_t up_to_block(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS * COLUMNS; }

// out, [ROWS, COLUMNS] = x, [ROWS, size], times y, [size, COLUMNS]; the strides are of rows.
inline void block_product(const float *x, int64_t x_stride, const float *y, int64_t y_stride,
                          float *out, int64_t out_stride, int64_t size) {
    Floats sums[ROWS][2] = {};
    for (int64_t k = 0; k < size; k++) {
        const Floats *row = reinterpret_cast<const Floats *>(y + k * y_stride);
#pragma GCC unroll 8
        for (int64_t r = 0; r < ROWS; r++) {
            sums[r][0] += x[r * x_stride + k] * row[0];
            sums[r][1] += x[r * x_stride + k] * row[1];
        }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < ROWS; r++) {
        Floats *to = reinterpret_cast<Floats *>(out + r * out_stride);
        to[0] = sums[r][0];
        to[1] = sums[r][1];
    }
}

// Scores, each into e^(score - the greatest): their sum. What is behind them, up to a whole block, is
// overwritten.
inline float exponentials(float *scores, int64_t length) {
    const int64_t padded = up_to_block(length);
    for (int64_t s = length; s < padded; s++) scores[s] = -INFINITY;
    Floats most = Floats{} - INFINITY;
    for (int64_t s = 0; s < padded; s += LANES) {
        Floats now = *reinterpret_cast<const Floats *>(scores + s);
        most = now > most ? now : most;
    }
    float greatest = -INFINITY, total = 0;
    for (int64_t j = 0; j < LANES; j++) greatest = most[j] > greatest ? most[j] : greatest;
    for (int64_t s = 0; s < padded; s++) {
        scores[s] = exponential(scores[s] - greatest);
        // Of the padding, so little that a sum of 1 or more stays as it is.
        total += scores[s];
    }
    return total;
}

// Attention of many queries to the keys and values of one head.
//
// Keys lie across, so that a block of products has scores of several of them.
class Across {
    const int64_t size, width, slots;
    std::vector<float> keys, values, weights, queries, sums;
    int64_t stride = 0;

  public:
    // size: of a head. slots: keys and values at most.
    Across(int64_t size, int64_t slots)
        : size(size), width(up_to_block(size)), slots(slots), keys(size * up_to_block(slots)),
          values(slots * width), weights(ROWS * up_to_block(slots)), queries(ROWS * size),
          sums(ROWS * width) {}

    // from_keys, from_values: [length, size].
    template <class T> void take(const T *from_keys, const T *from_values, int64_t length) {
        stride = up_to_block(length);
        for (int64_t s = 0; s < length; s++)
            for (int64_t d = 0; d < size; d++) {
                keys[d * stride + s] = read(from_keys[s * size + d]);
                values[s * width + d] = read(from_values[s * size + d]);
            }
    }

    // Attention of up to ROWS queries that are `apart` numbers apart. The first one attends to
    // `length` keys, and each to one more than the one before.
    template <class T>
    void attend(const T *query, T *out, int64_t length, int64_t count, int64_t apart) {
        for (int64_t r = 0; r < count; r++)
            for (int64_t d = 0; d < size; d++) queries[r * size + d] = read(query[r * apart + d]);
        for (int64_t s = 0; s < length + count - 1; s += COLUMNS)
            block_product(queries.data(), size, &keys[s], stride, &weights[s], stride, size);
        float totals[ROWS];
        for (int64_t r = 0; r < count; r++)
            totals[r] = exponentials(&weights[r * stride], length + r);
        for (int64_t d = 0; d < width; d += COLUMNS)
            block_product(weights.data(), stride, &values[d], width, &sums[d], width, length);
        for (int64_t r = 0; r < count; r++) {
            for (int64_t s = length; s < length + r; s++)
                for (int64_t d = 0; d < size; d++)
                    sums[r * width + d] += weights[r * stride + s] * values[s * width + d];
            for (int64_t d = 0; d < size; d++)
                write(&out[r * apart + d], sums[r * width + d] / totals[r]);
        }
    }
};

// Tokens of one row that follow each other, from the first to before `end`.
struct Run {
    int64_t first, end;
};

std::vector<Run> runs_of(const int64_t *rows, const int64_t *lengths, int64_t tokens) {
    // So that threads share the work of a long text.
    constexpr int64_t LONGEST = 128;
    std::vector<Run> runs;
    for (int64_t t = 0; t < tokens; t++) {
        bool follows = t && rows[t] == rows[t - 1] && lengths[t] == lengths[t - 1] + 1;
        if (follows && t - runs.back().first < LONGEST)
            runs.back().end++;
        else
            runs.push_back({t, t + 1});
    }
    return runs;
}

// query, out: [tokens, num_queries, size]. keys, values: a layer's cache, [rows, num_keys, slots,
// size]; token t attends to the first `lengths[t]` slots of row `rows[t]`.
template <class T>
void attended(const T *query, const T *keys, const T *values, T *out, const int64_t *rows,
              const int64_t *lengths, int64_t tokens, int64_t num_queries, int64_t num_keys,
              int64_t slots, int64_t size, int threads) {
    // Of the keys and values that all tokens of a row read.
    threads = threads_for(tokens * num_queries * slots, threads);
    const int64_t shared = num_queries / num_keys, apart = num_queries * size;
    const std::vector<Run> runs = runs_of(rows, lengths, tokens);
    const int64_t num_runs = runs.size();
    auto one = size == 64    ? attended_one<T, 64>
               : size == 128 ? attended_one<T, 128>
                             : attended_one<T, 0>;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        // Of steps, which have no longer runs, only the weights.
        std::vector<float> weights(slots);
        Across across(size, num_runs < tokens ? slots : 0);
#pragma omp for collapse(2)
        for (int64_t i = 0; i < num_runs; i++)
            for (int64_t key = 0; key < num_keys; key++) {
                const auto [first, end] = runs[i];
                const int64_t at = (rows[first] * num_keys + key) * slots * size;
                // Half a block takes as long as its queries one by one.
                const int64_t step = end - first < ROWS / 2 ? 1 : ROWS;
                if (step > 1) across.take(keys + at, values + at, lengths[end - 1]);
                for (int64_t t = first; t < end; t += step)
                    for (int64_t head = key * shared; head < (key + 1) * shared; head++) {
                        const T *q = query + t * apart + head * size;
                        T *o = out + t * apart + head * size;
                        if (step > 1)
                            across.attend(q, o, lengths[t], std::min(end - t, step), apart);
                        else
                            one(q, keys + at, values + at, o, weights.data(), lengths[t], size);
                    }
            }
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
// scratch: as many numbers as `Kernels.through` makes room for.
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
    }

#define LAYERS(T)                                                                                  \
    void through_##T(const Layer<T> *layers, const Shape *shape, const Tokens<T> *tokens, T *keys, \
                     T *values, T *hidden, T *more, T *scratch, int threads) {                     \
        through(layers, *shape, *tokens, keys, values, hidden, more, scratch, threads);            \
    }

extern "C" {
KERNELS(float)
KERNELS(bfloat16)
LAYERS(float)
#ifdef TILES
LAYERS(bfloat16)
#endif
}
