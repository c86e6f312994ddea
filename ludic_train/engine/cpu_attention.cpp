// Attention of tokens to the keys and values of their rows.
//
// A few tokens of a row, such as a step's, read keys and values once for all heads that share them.
// Texts go through in blocks of products of several queries with several keys.

#include "cpu_numbers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace {

constexpr int64_t LARGEST_HEAD = 512;

// Every other part of `size` lanes of two vectors, from part `first` on.
template <size_t size, size_t first, size_t... i>
inline Vector parts_of(Vector x, Vector y, std::index_sequence<i...>) {
#if defined(__clang__)
    return __builtin_shufflevector(x, y, (i / size * 2 * size + i % size + first * size)...);
#else
    return __builtin_shuffle(x, y, WordVector{(i / size * 2 * size + i % size + first * size)...});
#endif
}

// The sums of the lanes of each vector, from LANES vectors.
template <int64_t size = LANES / 2> inline Vector sums_of(const Vector *x) {
    Vector halves[size];
    for (int64_t i = 0; i < size; i++) {
        constexpr auto LANE = std::make_index_sequence<LANES>();
        halves[i] = parts_of<size, 0>(x[2 * i], x[2 * i + 1], LANE) +
                    parts_of<size, 1>(x[2 * i], x[2 * i + 1], LANE);
    }
    if constexpr (size > 1)
        return sums_of<size / 2>(halves);
    else
        return halves[0];
}

// Columns of a block of products.
constexpr int64_t COLUMNS = 2 * LANES;

inline int64_t up_to_block(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS * COLUMNS; }

// Scores, each into e^(score - the greatest): their sum. What is behind them, up to a whole block, is
// overwritten.
inline float exponentials(float *scores, int64_t length) {
    const int64_t padded = up_to_block(length);
    for (int64_t s = length; s < padded; s++) scores[s] = -INFINITY;
    Vector most = Vector{} - INFINITY;
    for (int64_t s = 0; s < padded; s += LANES) {
        Vector now = *reinterpret_cast<const Floats *>(scores + s);
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

// Attention of one query, [size], to `length` keys and values: out, [size].
template <class T>
void attended_one(const T *query, const T *keys, const T *values, T *out, float *weights,
                  int64_t length, int64_t size) {
    for (int64_t s = 0; s < length; s++) {
        weights[s] = 0;
        for (int64_t d = 0; d < size; d++) weights[s] += read(query[d]) * read(keys[s * size + d]);
    }
    float total = exponentials(weights, length), sums[LARGEST_HEAD] = {};
    for (int64_t s = 0; s < length; s++)
        for (int64_t d = 0; d < size; d++) sums[d] += weights[s] * read(values[s * size + d]);
    for (int64_t d = 0; d < size; d++) write(&out[d], sums[d] / total);
}

// Asks for a head, [SIZE], that is read later: at the end of a row's tokens the processor's own
// prefetching stops.
template <int64_t SIZE, class T> inline void fetch(const T *at) {
    constexpr int64_t LINE = 64 / sizeof(T);
    for (int64_t j = 0; j < SIZE; j += LINE) __builtin_prefetch(at + j, 0, 2);
}

// The same of H queries that share keys and values: query and out, [H, SIZE]; weights, [H, slots],
// each row up to a whole block. The next keys are `slots` keys behind these.
template <class T, int64_t SIZE, int64_t H>
void attended_shared(const T *query, const T *keys, const T *values, T *out, float *weights,
                     int64_t slots, int64_t length) {
    const int64_t stride = up_to_block(slots);
    constexpr int64_t VECTORS = SIZE / LANES, PASS = H * VECTORS <= 16 ? VECTORS : 2;
    Vector q[H][VECTORS], parts[H][LANES] = {};
    for (int64_t h = 0; h < H; h++) read_vectors<VECTORS>(query + h * SIZE, q[h]);
    for (int64_t s = 0; s < length; s += LANES) {
        const int64_t count = std::min(LANES, length - s);
        for (int64_t i = 0; i < count; i++) {
            fetch<SIZE>(values + (s + i) * SIZE);
            Vector key[VECTORS];
            read_vectors<VECTORS>(keys + (s + i) * SIZE, key);
            for (int64_t h = 0; h < H; h++) {
                parts[h][i] = q[h][0] * key[0];
                for (int64_t j = 1; j < VECTORS; j++) parts[h][i] += q[h][j] * key[j];
            }
        }
        for (int64_t h = 0; h < H; h++)
            *reinterpret_cast<Floats *>(weights + h * stride + s) = sums_of(parts[h]);
    }
    float totals[H];
    for (int64_t h = 0; h < H; h++) totals[h] = exponentials(weights + h * stride, length);
    for (int64_t from = 0; from < VECTORS; from += PASS) {
        Vector sums[H][PASS] = {};
        for (int64_t s = 0; s < length; s++) {
            if (!from) fetch<SIZE>(keys + (slots + s) * SIZE);
            Vector value[PASS];
            read_vectors<PASS>(values + s * SIZE + from * LANES, value);
            for (int64_t h = 0; h < H; h++)
                for (int64_t j = 0; j < PASS; j++) sums[h][j] += weights[h * stride + s] * value[j];
        }
        for (int64_t h = 0; h < H; h++) {
            for (int64_t j = 0; j < PASS; j++) sums[h][j] /= totals[h];
            write_vectors<PASS>(out + h * SIZE + from * LANES, sums[h]);
        }
    }
}

// out, [ROWS, COLUMNS] = x, [ROWS, size], times y, [size, COLUMNS]; the strides are of rows.
inline void block_product(const float *x, int64_t x_stride, const float *y, int64_t y_stride,
                          float *out, int64_t out_stride, int64_t size) {
    Vector sums[ROWS][2] = {};
    for (int64_t k = 0; k < size; k++) {
        Vector row[2];
        read_vectors<2>(y + k * y_stride, row);
        hold(row[0]);
        hold(row[1]);
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

// Queries that `attended_shared` takes together at most.
constexpr int64_t SHARED = 4;

// The same of any number of queries.
template <class T, int64_t SIZE>
void attended_in_groups(const T *query, const T *keys, const T *values, T *out, float *weights,
                        int64_t slots, int64_t length, int64_t count) {
    static constexpr decltype(&attended_shared<T, SIZE, 1>) OF_QUERIES[SHARED] = {
        attended_shared<T, SIZE, 1>, attended_shared<T, SIZE, 2>, attended_shared<T, SIZE, 3>,
        attended_shared<T, SIZE, 4>};
    for (int64_t h = 0; h < count; h += SHARED) {
        const int64_t together = std::min(count - h, SHARED);
        OF_QUERIES[together - 1](query + h * SIZE, keys, values, out + h * SIZE, weights, slots,
                                 length);
    }
}

template <class T>
void attended_by(const T *query, const T *keys, const T *values, T *out, float *weights,
                 int64_t slots, int64_t length, int64_t count, int64_t size) {
    if (size == 64)
        attended_in_groups<T, 64>(query, keys, values, out, weights, slots, length, count);
    else if (size == 128)
        attended_in_groups<T, 128>(query, keys, values, out, weights, slots, length, count);
    else
        for (int64_t i = 0; i < count * size; i += size)
            attended_one(query + i, keys, values, out + i, weights, length, size);
}

// Attention of many queries to the keys and values of one head.
//
// Keys lie across, so that a block of products has scores of several of them.
class Across {
    const int64_t size, width;
    std::vector<float> keys, values, weights, queries, sums;
    int64_t stride = 0;

  public:
    // size: of a head. slots: keys and values at most.
    Across(int64_t size, int64_t slots)
        : size(size), width(up_to_block(size)), keys(size * up_to_block(slots)),
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

// As `attended`.
template <class T>
void attended_tokens(const T *query, const T *keys, const T *values, T *out, const int64_t *rows,
                     const int64_t *lengths, int64_t tokens, int64_t num_queries, int64_t num_keys,
                     int64_t slots, int64_t size, int threads) {
    // Of the keys and values that all tokens of a row read.
    threads = threads_for(tokens * num_queries * slots, threads);
    const int64_t shared = num_queries / num_keys, apart = num_queries * size;
    const std::vector<Run> runs = runs_of(rows, lengths, tokens);
    const int64_t num_runs = runs.size();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        // Of steps, which have no longer runs, only the weights.
        std::vector<float> weights(SHARED * up_to_block(slots));
        Across across(size, num_runs < tokens ? slots : 0);
#pragma omp for collapse(2)
        for (int64_t i = 0; i < num_runs; i++)
            for (int64_t key = 0; key < num_keys; key++) {
                const auto [first, end] = runs[i];
                const int64_t at = (rows[first] * num_keys + key) * slots * size;
                // Half a block takes as long as its queries one by one.
                const int64_t step = end - first < ROWS / 2 ? 1 : ROWS;
                if (step > 1) across.take(keys + at, values + at, lengths[end - 1]);
                for (int64_t t = first; t < end; t += step) {
                    const int64_t head = (t * num_queries + key * shared) * size;
                    if (step == 1) {
                        attended_by(query + head, keys + at, values + at, out + head, weights.data(),
                                    slots, lengths[t], shared, size);
                        continue;
                    }
                    for (int64_t h = 0; h < shared; h++)
                        across.attend(query + head + h * size, out + head + h * size, lengths[t],
                                      std::min(end - t, step), apart);
                }
            }
    }
}

}  // namespace

void attended(const float *query, const float *keys, const float *values, float *out,
              const int64_t *rows, const int64_t *lengths, int64_t tokens, int64_t num_queries,
              int64_t num_keys, int64_t slots, int64_t size, int threads) {
    attended_tokens(query, keys, values, out, rows, lengths, tokens, num_queries, num_keys, slots,
                    size, threads);
}

void attended(const bfloat16 *query, const bfloat16 *keys, const bfloat16 *values, bfloat16 *out,
              const int64_t *rows, const int64_t *lengths, int64_t tokens, int64_t num_queries,
              int64_t num_keys, int64_t slots, int64_t size, int threads) {
    attended_tokens(query, keys, values, out, rows, lengths, tokens, num_queries, num_keys, slots,
                    size, threads);
}
