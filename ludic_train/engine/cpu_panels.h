// Matrices in panels of their rows, which products read one after another, each as one stream.
//
// With few rows the time is the memory's, so that the next panel is fetched while this one is used.
// Each sum is added up in one order, however many rows and threads there are.

#pragma once

#include "cpu_numbers.h"

constexpr int64_t LINE = 64;

// Part `i` of `parts` of `total`: its beginning.
inline int64_t part(int64_t total, int64_t i, int64_t parts) { return total * i / parts; }

// Part `i` of `parts` of the panel that follows, asked for line by line while this one is used.
struct Following {
    const char *at;
    int64_t lines;

    // panel: of so many bytes, which are used in so many steps.
    Following(const void *panel, int64_t bytes, int64_t i, int64_t parts, int64_t steps) {
        int64_t all = bytes / (steps * LINE);
        lines = (all + parts - 1) / parts;
        at = static_cast<const char *>(panel) + bytes + i * lines * steps * LINE;
        if (i * lines >= all) lines = 0;
    }

    inline void fetch() {
        for (int64_t j = 0; j < lines; j++, at += LINE) __builtin_prefetch(at, 0, 2);
    }
};

// weight, [outputs, units], as [padded / width, units, width], with zeros behind the outputs. A unit
// is an input, or two of bfloat16.
template <int64_t width, class Unit>
void packed(const Unit *weight, Unit *panels, int64_t outputs, int64_t padded, int64_t units,
            int threads) {
    threads = threads_for(padded * units, threads);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t column = 0; column < padded; column += width) {
        Unit *panel = panels + column * units;
        int64_t columns = outputs - column;
        for (int64_t k = 0; k < units; k++)
            for (int64_t c = 0; c < width; c++)
                panel[k * width + c] = c < columns ? weight[(column + c) * units + k] : Unit{};
    }
}
