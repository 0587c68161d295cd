// Linear maps of a few rows.
//
// Each number is computed by one chain of operations whose order, and hence its bits, depend only on its own row: not
// on the other rows, nor on the tile or the thread.
//
// Functions marked "by all threads" are called inside a parallel region, share their work, and wait for each other.
#pragma once

#include "vectors.h"

namespace {

constexpr int TALLEST = BYTES == 64 ? 12 : 4;  // a tile of 12 rows by 2 panels fills 24 of 32 registers

// ½ x (1 + tanh u) = x / (1 + e⁻²ᵘ) with u = √(2/π) (x + 0.044715 x³)
inline Vector gelu(Vector x) { return x / (1 + exponential(-Number(1.5957691216) * (x + Number(0.044715) * x * x * x))); }

enum Activation { NONE, GELU, RELU, SWISH };

inline Vector activated(Vector x, Activation activation) {
    switch (activation) {
        case GELU: return gelu(x);
        case RELU: return x > 0 ? x : Vector{};
        case SWISH: return x / (1 + exponential(-x));
        default: return x;
    }
}

// Y = f(X Wᵀ + b) + Z: each number of X Wᵀ + b is b + w₁x₁ + w₂x₂ + …, in this order.
//
// W is stored in panels of LANES outputs, each as inputs × LANES: a step of the chain reads one vector of weights and
// multiplies it by one number of each row. With few rows, reading the weights is the bottleneck, so several panels are
// read at a time; with many, arithmetic is, so a tile of rows shares what was read.

constexpr int GROUP = 4;    // panels applied to all rows before the next ones are read
constexpr int AHEAD = 512;  // numbers to prefetch ahead of use

struct Map {
    const Number *panels, *bias;
    Size inputs, outputs;
};

struct After {
    Activation activation;
    const Number *add;
};

// x is stored as inputs × ROWS; y and after.add start at the first of the rows.
template <int ROWS, int PANELS> void tile(const Map &map, const Number *x, Number *y, Size panel, After after) {
    const Size stride = map.inputs * LANES;
    const Number *panels = map.panels + panel * stride;
    Vector sums[ROWS][PANELS];
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) sums[r][p] = *(const Vector *)(map.bias + (panel + p) * LANES);
    for (Size i = 0; i < map.inputs; i++) {
        Vector w[PANELS];
#pragma GCC unroll 4
        for (int p = 0; p < PANELS; p++) {
            w[p] = *(const Vector *)(panels + p * stride + i * LANES);
            __builtin_prefetch(panels + p * stride + i * LANES + AHEAD);
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; p++) sums[r][p] += w[p] * x[i * ROWS + r];
    }
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) {
            const Size row = r * map.outputs, first = (panel + p) * LANES;
            Vector sum = activated(sums[r][p], after.activation);
            if (after.add) sum += load(after.add + row, first, map.outputs);
            store(sum, y + row, first, map.outputs);
        }
}

template <int ROWS, int PANELS>
void tiles(const Map &map, const Number *x, Number *y, Size panel, Size count, After after) {
    for (; count >= PANELS; count -= PANELS, panel += PANELS) tile<ROWS, PANELS>(map, x, y, panel, after);
    for (; count > 0; count--, panel++) tile<ROWS, 1>(map, x, y, panel, after);
}

// The height of the next tile when `rows` rows are left.
inline int height(Size rows) {
    for (int tall : {TALLEST, 8, 4, 2})
        if (tall <= TALLEST && tall <= rows) return tall;
    return 1;
}

void group(const Map &map, const Number *x, Number *y, Size rows, Size panel, Size count, After after) {
    while (rows > 0) {
        const int tall = height(rows);
        switch (tall) {
            case 12: tiles<12, 2>(map, x, y, panel, count, after); break;
            case 8: tiles<8, 2>(map, x, y, panel, count, after); break;
            case 4: tiles<4, BYTES == 64 ? 4 : 2>(map, x, y, panel, count, after); break;
            case 2: tiles<2, 4>(map, x, y, panel, count, after); break;
            default: tiles<1, 4>(map, x, y, panel, count, after);
        }
        rows -= tall, x += tall * map.inputs, y += tall * map.outputs;
        if (after.add) after.add += tall * map.outputs;
    }
}

template <int ROWS> void turn(const Number *x, Number *to, Size inputs) {
    for (Size i = 0; i < inputs; i++)
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) to[i * ROWS + r] = x[r * inputs + i];
}

// Transpose tile after tile, from rows × inputs to inputs × rows.
void turn(const Number *x, Number *to, Size rows, Size inputs) {
    while (rows > 0) {
        const int tall = height(rows);
        switch (tall) {
            case 12: turn<12>(x, to, inputs); break;
            case 8: turn<8>(x, to, inputs); break;
            case 4: turn<4>(x, to, inputs); break;
            case 2: turn<2>(x, to, inputs); break;
            default: turn<1>(x, to, inputs);
        }
        rows -= tall, x += tall * inputs, to += tall * inputs;
    }
}

// By all threads. `turned` is a buffer for the inputs.
void apply(const Map &map, const Number *x, Number *turned, Number *y, Size rows, After after = {}) {
#pragma omp for schedule(static)
    for (Size row = 0; row < rows; row += TALLEST)
        turn(x + row * map.inputs, turned + row * map.inputs, std::min<Size>(TALLEST, rows - row), map.inputs);
    const Size panels = rounded(map.outputs) / LANES;
#pragma omp for schedule(static)
    for (Size panel = 0; panel < panels; panel += GROUP)
        group(map, turned, y, rows, panel, std::min<Size>(GROUP, panels - panel), after);
}

}  // namespace
