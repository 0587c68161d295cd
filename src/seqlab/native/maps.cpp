// The linear maps of `linear.h`, for code that is compiled separately.

#include "linear.h"

extern "C" {

int lanes() { return LANES; }

// Y = X Wᵀ, by all threads. `turned` is a buffer for X.
void apply_map(const Map *map, const Number *x, Number *turned, Number *y, Size rows) { apply(*map, x, turned, y, rows); }

// Pack W into panels, from a matrix whose element (output, input) is weight[output · down + input · across].
void pack(const Number *weight, Size down, Size across, Number *panels, Size outputs, Size inputs, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Size panel = 0; panel < rounded(outputs) / LANES; panel++) {
        Number *to = panels + panel * inputs * LANES;
        const Size first = panel * LANES, count = std::min<Size>(LANES, outputs - first);
        const Number *from = weight + first * down;
        constexpr Size BLOCK = 16;  // fill a few cache lines at a time
        for (Size begin = 0; begin < inputs; begin += BLOCK)
            for (Size lane = 0; lane < LANES; lane++)
                for (Size i = begin; i < std::min(begin + BLOCK, inputs); i++)
                    to[i * LANES + lane] = lane < count ? from[lane * down + i * across] : 0;
    }
}
}
