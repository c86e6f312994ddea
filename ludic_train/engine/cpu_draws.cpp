// A token per row, drawn from softmax(logits / temperature) of the tokens that are not left out.

#include "cpu_numbers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace {

// The weights of so many tokens are added up as floats, and these sums as doubles: 150,000 floats
// would lose the last of them.
constexpr int64_t BLOCK = 512;
// Of less than e to this power, a weight counts as 0.
constexpr float LEAST = -87;
// Tokens are told apart by their powers in so many steps, down to LEAST.
constexpr int64_t STEPS = 1024;

// NaN is passed over.
template <class T> float greatest(const T *x, int64_t count) {
    // So many vectors, as each waits for the one before in its place.
    constexpr int64_t VECTORS = 4, STRIDE = VECTORS * LANES;
    Vector most[VECTORS];
    for (Vector &each : most) each = Vector{} - INFINITY;
    int64_t at = 0;
    for (; at + STRIDE <= count; at += STRIDE) {
        Vector now[VECTORS];
        read_vectors<VECTORS>(x + at, now);
        for (int64_t j = 0; j < VECTORS; j++) most[j] = now[j] > most[j] ? now[j] : most[j];
    }
    float out = -INFINITY;
    for (const Vector &each : most)
        for (int64_t j = 0; j < LANES; j++) out = std::max(out, each[j]);
    for (; at < count; at++) out = std::max(out, read(x[at]));
    return out;
}

struct Token {
    int64_t id;
    float power, weight;

    // Likelier, or the first of equal ones.
    bool operator<(const Token &other) const {
        return power != other.power ? power > other.power : id < other.id;
    }
};

// A row of logits. A token's power is (x - most) * scale, and its weight e to it.
template <class T> struct Row {
    const T *x;
    int64_t count;
    float most, scale;

    int64_t blocks() const { return (count + BLOCK - 1) / BLOCK; }
    int64_t size(int64_t block) const { return std::min(BLOCK, count - block * BLOCK); }

    // The powers and weights of a block, and the sum of the weights.
    float weigh(int64_t block, float *powers, float *weights) const {
        float sum = 0;
        for (int64_t i = 0; i < size(block); i++) {
            powers[i] = (read(x[block * BLOCK + i]) - most) * scale;
            weights[i] = powers[i] < LEAST ? 0 : exponential(powers[i]);
            sum += weights[i];
        }
        return sum;
    }

    // Calls `take` with each token that is possible and has at least this power.
    template <class Take> void each_from(float power, const Take &take) const {
        float powers[BLOCK], weights[BLOCK];
        for (int64_t block = 0; block < blocks(); block++) {
            weigh(block, powers, weights);
            for (int64_t i = 0; i < size(block); i++)
                if (powers[i] >= power && powers[i] > -INFINITY)
                    take(Token{block * BLOCK + i, powers[i], weights[i]});
        }
    }
};

// Tokens by their powers in steps: how many there are in each, and their weights together.
struct Steps {
    int64_t counts[STEPS] = {};
    double weights[STEPS] = {};

    static int64_t of(const Token &token) {
        return std::min(int64_t(std::max(token.power, LEAST) * (STEPS / LEAST)), STEPS - 1);
    }
    void add(const Token &token) {
        counts[of(token)]++;
        weights[of(token)] += token.weight;
    }
    double total() const {
        double out = 0;
        for (double each : weights) out += each;
        return out;
    }
    // The first step with which there are so many tokens, or tokens of this weight.
    int64_t reaching(int64_t number, double weight) const {
        for (int64_t step = 0; step < STEPS - 1; step++) {
            number -= counts[step];
            weight -= weights[step];
            if (number <= 0 || weight <= 0) return step;
        }
        return STEPS - 1;
    }
};

// The tokens that a row is drawn from, in any order. top_p, min_p, top_k: as of `Sampling`.
template <class T>
std::vector<Token> kept(const Row<T> &row, float top_p, float min_p, int64_t top_k) {
    // Each of the three keeps the first tokens in one order. Few are put into it, found by the step
    // of their power: to sort them all takes twenty times as long.
    const float floor = min_p > 0 ? std::log(min_p) : -INFINITY;
    const bool is_counted = top_k > 0 && top_k < row.count;
    Steps steps;
    row.each_from(floor, [&](const Token &token) { steps.add(token); });
    double total = steps.total();
    const int64_t last = is_counted ? steps.reaching(top_k, INFINITY)
                                    : steps.reaching(row.count, top_p < 1 ? top_p * total : INFINITY);
    std::vector<Token> tokens;
    row.each_from(floor, [&](const Token &token) {
        if (Steps::of(token) <= last) tokens.push_back(token);
    });
    if (is_counted && top_k < int64_t(tokens.size())) {
        std::nth_element(tokens.begin(), tokens.begin() + top_k, tokens.end());
        tokens.resize(top_k);
    }
    if (top_p == 1) return tokens;
    if (is_counted) {
        total = 0;
        for (const Token &token : tokens) total += token.weight;
    }
    // What comes before the last step is kept, in any order.
    auto end = tokens.begin();
    if (!is_counted)
        end = std::partition(tokens.begin(), tokens.end(),
                             [&](const Token &token) { return Steps::of(token) < last; });
    std::sort(end, tokens.end());
    double sum = 0;
    for (auto token = tokens.begin(); token != end; token++) sum += token->weight;
    while (end != tokens.end() && sum < top_p * total) sum += (end++)->weight;
    tokens.erase(end, tokens.end());
    return tokens;
}

// The token at which the cumulative weights pass `uniform` of their total, and the total: NaN if any
// logit is NaN or infinity. inside: the tokens to draw from; null for all.
template <class T>
std::pair<int64_t, double> passed(const Row<T> &row, const bool *inside, double uniform) {
    float powers[BLOCK], weights[BLOCK];
    // Adds up a block, and leaves out what is not inside.
    auto weigh = [&](int64_t block) {
        const float all = row.weigh(block, powers, weights);
        if (!inside || std::isnan(all)) return all;
        float sum = 0;
        for (int64_t i = 0; i < row.size(block); i++) {
            weights[i] = inside[block * BLOCK + i] ? weights[i] : 0;
            sum += weights[i];
        }
        return sum;
    };
    std::vector<double> sums(row.blocks());
    double total = 0;
    for (int64_t block = 0; block < row.blocks(); block++) sums[block] = total += weigh(block);
    const double point = uniform * total;
    const int64_t found = std::upper_bound(sums.begin(), sums.end(), point) - sums.begin();
    // Nothing passes NaN.
    const int64_t block = std::min(found, row.blocks() - 1);
    weigh(block);
    // The last token that is possible, should rounding keep the sum of its block below the point.
    int64_t token = block * BLOCK;
    double sum = block ? sums[block - 1] : 0;
    for (int64_t i = 0; i < row.size(block) && sum <= point; i++) {
        if (weights[i] > 0) token = block * BLOCK + i;
        sum += weights[i];
    }
    return {token, total};
}

// What each row is drawn by. inside: [rows, vocabulary], false; true for what is not left out of the
// rows that leave tokens out. It is null if there are none.
struct Draws {
    const float *temperatures, *top_p, *min_p;
    const int64_t *top_k;
    const double *uniform;
    bool *inside;
};

// ids, logprobs: [rows], nats. A temperature of 0 takes the likeliest token, the first of equal ones,
// with its log-prob at 1. The log-prob of a row with NaN or infinity is NaN.
template <class T>
void drawn(const T *logits, const Draws &draws, int64_t *ids, float *logprobs, int64_t rows,
           int64_t vocabulary, int threads) {
    threads = threads_for(rows * vocabulary, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const T *x = logits + i * vocabulary;
        const float temperature = draws.temperatures[i], most = greatest(x, vocabulary);
        const Row<T> row{x, vocabulary, most, temperature > 0 ? 1 / temperature : 1};
        const float top_p = draws.top_p[i], min_p = draws.min_p[i];
        bool *inside = nullptr;
        if (temperature > 0 && (top_p < 1 || draws.top_k[i] > 0 || min_p > 0)) {
            inside = draws.inside + i * vocabulary;
            for (const Token &token : kept(row, top_p, min_p, draws.top_k[i]))
                inside[token.id] = true;
        }
        auto [token, total] = passed(row, inside, draws.uniform[i]);
        if (temperature == 0) {
            token = 0;
            while (token < vocabulary - 1 && read(x[token]) != most) token++;
        }
        ids[i] = token;
        logprobs[i] = (double(read(x[token])) - most) * row.scale - std::log(total);
    }
}

}  // namespace

#define DRAWS(T)                                                                                   \
    void drawn_##T(const T *logits, const Draws *draws, int64_t *ids, float *logprobs,             \
                   int64_t rows, int64_t vocabulary, int threads) {                                \
        drawn(logits, *draws, ids, logprobs, rows, vocabulary, threads);                           \
    }

extern "C" {
DRAWS(float)
DRAWS(bfloat16)
}
