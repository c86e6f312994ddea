// Products of a few rows with the matrices of a model, by the matrix unit of a processor (AMX).

#include "cpu_panels.h"

#ifdef TILES

#include <algorithm>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace {

// A tile has 16 rows of 64 bytes; a panel's row of tiles has so many outputs, of pairs of inputs.
constexpr int64_t TILE = 16, TILE_INPUTS = 32, TILED_WIDTH = 32;
// Parts of 32 rows up to which one panel is used by all of them, and panels of a group with more.
constexpr int64_t FEW_PARTS = 4, GROUP = 8;

// Panels that one part of the rows passes through before the next part does. The time of few rows is
// the memory's: a panel is used by all of them while the next one is fetched. With more, the panels
// of a group stay in the cache, and outputs that lie side by side are written together.
inline int64_t together(int64_t panels, int64_t parts, int threads) {
    return parts <= FEW_PARTS ? 1 : std::max<int64_t>(1, std::min(GROUP, panels / threads));
}

struct Shapes {
    uint8_t palette, start, zeros[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

static_assert(sizeof(Shapes) == 64, "as the processor reads it");

// Tiles 0 and 1 for the sums of `above` rows, 2 and 3 for those of `below`; 4 and 5 for the rows; 6
// and 7 for the matrix.
inline void shape_tiles(int64_t above, int64_t below) {
    Shapes shapes = {};
    shapes.palette = 1;
    std::fill_n(shapes.bytes, 8, LINE);
    std::fill_n(shapes.rows, 8, TILE);
    shapes.rows[0] = shapes.rows[1] = shapes.rows[4] = above;
    shapes.rows[2] = shapes.rows[3] = shapes.rows[5] = std::max<int64_t>(below, 1);
    _tile_loadconfig(&shapes);
}

// Sums of a panel that become outputs row by row, while the unit computes the next ones.
struct Pending {
    const float *sums;
    const bfloat16 *bias;
    bfloat16 *out;
    int64_t rows, outputs;
    // Bits of the columns that there are.
    uint32_t columns;

    inline void finish(int64_t r) const {
        const float *row = sums + r * TILED_WIDTH;
        __m512 low = _mm512_load_ps(row), high = _mm512_load_ps(row + TILE);
        if (bias) {
            __m512i more = _mm512_maskz_loadu_epi16(columns, bias);
            low += _mm512_cvtpbh_ps((__m256bh)_mm512_castsi512_si256(more));
            high += _mm512_cvtpbh_ps((__m256bh)_mm512_extracti64x4_epi64(more, 1));
        }
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi16(out + r * outputs, columns, both);
    }
};

// Sums of 16 rows, or of up to 32 if `below`, with one panel, [2, inputs / 2, TILE, 2]: out, [rows,
// TILED_WIDTH]. A function of its own, so that its loop finds free registers.
template <bool below>
__attribute__((noinline)) void summed_tiles(const bfloat16 *x, const bfloat16 *panel, float *out,
                                            int64_t inputs, Following following,
                                            const Pending &pending) {
    constexpr int64_t across = TILED_WIDTH * sizeof(float);
    const bfloat16 *right = panel + inputs * TILE, *under = x + inputs * TILE;
    const int64_t stride = inputs * sizeof(bfloat16);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < inputs; k += TILE_INPUTS) {
        following.fetch();
        // Two rows a step, of the step's number: with a counter, the loop takes half as long again.
        if (k / TILE + 1 < pending.rows) {
            pending.finish(k / TILE);
            pending.finish(k / TILE + 1);
        }
        _tile_loadd(6, panel + k * TILE, LINE);
        _tile_loadd(4, x + k, stride);
        _tile_loadd(7, right + k * TILE, LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (below) {
            _tile_loadd(5, under + k, stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    for (int64_t r = std::min(pending.rows / 2 * 2, inputs / TILE); r < pending.rows; r++)
        pending.finish(r);
    _tile_stored(0, out, across);
    _tile_stored(1, out + TILE, across);
    if (below) {
        _tile_stored(2, out + TILE * TILED_WIDTH, across);
        _tile_stored(3, out + TILE * TILED_WIDTH + TILE, across);
    }
}

}  // namespace

void product(const bfloat16 *x, const bfloat16 *panels, const bfloat16 *bias, bfloat16 *out,
             int64_t rows, int64_t inputs, int64_t outputs, int threads) {
    threads = threads_for(inputs * outputs, threads);
    const int64_t parts = (rows + 2 * TILE - 1) / (2 * TILE);
    const int64_t group = TILED_WIDTH * together(outputs / TILED_WIDTH, parts, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        // Others that use the unit in this thread, such as oneDNN, may rely on their shapes.
        Shapes before;
        _tile_storeconfig(&before);
        int64_t shaped = 0;
        alignas(LINE) float sums[2][2 * TILE * TILED_WIDTH];
        float *now = sums[0], *other = sums[1];
        Pending pending = {};
#pragma omp for
        for (int64_t left = 0; left < outputs; left += group)
            for (int64_t i = 0; i < parts; i++)
                for (int64_t column = left; column < std::min(outputs, left + group);
                     column += TILED_WIDTH) {
                    const bfloat16 *panel = panels + column * inputs;
                    int64_t row = i * 2 * TILE, count = std::min(rows - row, 2 * TILE);
                    int64_t above = std::min(count, TILE), below = count - above;
                    if (count != shaped) shape_tiles(above, below);
                    shaped = count;
                    Following following(panel, inputs * TILED_WIDTH * sizeof(bfloat16), i, parts,
                                        inputs / TILE_INPUTS);
                    auto summed = below ? summed_tiles<true> : summed_tiles<false>;
                    summed(x + row * inputs, panel, now, inputs, following, pending);
                    int64_t columns = std::min(outputs - column, TILED_WIDTH);
                    pending = {now,
                               bias ? bias + column : bias,
                               out + row * outputs + column,
                               count,
                               outputs,
                               ~uint32_t(0) >> (TILED_WIDTH - columns)};
                    std::swap(now, other);
                }
        for (int64_t r = 0; r < pending.rows; r++) pending.finish(r);
        if (before.palette)
            _tile_loadconfig(&before);
        else
            _tile_release();
    }
}

extern "C" {

// As in `cpu_products.cpp`.
int64_t panel_bfloat16() {
    // A process has to ask for the matrix unit before it uses it.
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0 ? TILED_WIDTH : 0;
}

void packed_bfloat16(const uint32_t *weight, uint32_t *panels, int64_t outputs, int64_t padded,
                     int64_t inputs, int threads) {
    packed<TILE>(weight, panels, outputs, padded, inputs / 2, threads);
}

void product_bfloat16(const bfloat16 *x, const bfloat16 *panels, const bfloat16 *bias,
                      bfloat16 *out, int64_t rows, int64_t inputs, int64_t outputs, int threads) {
    product(x, panels, bias, out, rows, inputs, outputs, threads);
}
}

#endif
