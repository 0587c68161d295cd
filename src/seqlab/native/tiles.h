// Tiles of matrix products, C += A B, that stay in registers while two panels of B pass by.
//
// Goto & van de Geijn 2008, Anatomy of high-performance matrix multiplication: panels of B are copied to where they
// follow each other and stay in the caches while the rows of A pass by. Each number of C is one chain
// c + a₀b₀ + a₁b₁ + …, in this order, so its bits do not depend on other rows.
#pragma once

#include "vectors.h"

namespace {

#if defined(__AVX512F__)
constexpr int ROWS = 12;  // a tile of 12 × 2 vectors takes 24 of 32 registers
#elif defined(__AVX__)
constexpr int ROWS = 6;
#else
constexpr int ROWS = 4;
#endif
constexpr int WIDE = 2;
constexpr Size DEPTH = 256;         // multiplied at a time: two panels of it fit into the nearest cache
constexpr Size TALL = 16 * ROWS;    // rows of A at a time
constexpr Size APART = DEPTH + 2 * LANES;  // between rows of A, so that they do not compete for the same lines of a cache

struct Matrix {
    const Number *numbers;
    Size down, across;  // element (row, column) is numbers[row · down + column · across]

    const Number *at(Size row, Size column) const { return numbers + row * down + column * across; }
};

struct Panels {  // of B: each has `depth` × LANES numbers
    const Number *numbers;
    Size depth;

    const Number *at(Size panel) const { return numbers + panel * depth * LANES; }
};

struct Part {  // of C: the numbers from here on, with `columns` left in a row
    Number *c;
    Size stride, columns;
    const Number *bias;
    bool begin;  // nothing has been added yet
};

// C += A B for R rows and P panels. A number of A is a[row · DOWN + i · ACROSS].
template <int R, int P, Size DOWN, Size ACROSS>
inline void tile(const Number *a, Panels panels, Size depth, Part part) {
    Vector sums[R][P];
    for (int p = 0; p < P; p++) {
        const Vector bias = part.bias ? load(part.bias, p * LANES, part.columns) : Vector{};
        for (int r = 0; r < R; r++)
            sums[r][p] = part.begin ? bias : load(part.c + r * part.stride, p * LANES, part.columns);
    }
    for (Size i = 0; i < depth; i++) {
        Vector b[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; p++) b[p] = *(const Vector *)(panels.at(p) + i * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
            for (int p = 0; p < P; p++) sums[r][p] += b[p] * a[r * DOWN + i * ACROSS];
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P; p++) store(sums[r][p], part.c + r * part.stride, p * LANES, part.columns);
}

template <int P, Size DOWN, Size ACROSS>
void rows(const Number *a, Size count, Panels panels, Size depth, Part part) {
    constexpr Size TILE = DOWN == 1 ? DEPTH : DOWN;  // numbers of a row of tiles
    Size row = 0;
    const auto each = [&](auto tall) {
        constexpr int R = decltype(tall)::value;
        for (; row + R <= count; row += R) {
            Part own = part;
            own.c += row * part.stride;
            tile<R, P, DOWN, ACROSS>(a + row / ROWS * ROWS * TILE + row % ROWS * DOWN, panels, depth, own);
        }
    };
    each(std::integral_constant<int, ROWS>());
    if constexpr (ROWS > 4) each(std::integral_constant<int, 4>());
    each(std::integral_constant<int, 1>());
}

// C += A B for `count` rows, at most TALL, and the panels from `first` to `last`.
template <Size DOWN, Size ACROSS>
void block(const Number *a, Size count, Panels panels, Size depth, Size first, Size last, Part part) {
    for (Size panel = first; panel < last; panel += WIDE) {
        Part own = part;
        own.c += panel * LANES, own.columns -= panel * LANES;
        if (own.bias) own.bias += panel * LANES;
        const Panels here{panels.at(panel), panels.depth};
        if (panel + WIDE <= last)
            rows<WIDE, DOWN, ACROSS>(a, count, here, depth, own);
        else
            rows<1, DOWN, ACROSS>(a, count, here, depth, own);
    }
}

// Transpose LANES × LANES numbers: exchange the off-diagonal blocks of ever smaller squares.
template <int HALF> inline void transpose(Vector *x) {
    typedef std::conditional_t<sizeof(Number) == 4, std::int32_t, std::int64_t> Index;
    typedef Index Indices __attribute__((vector_size(BYTES)));
    Indices upper, lower;
    for (int i = 0; i < LANES; i++) {
        upper[i] = i & HALF ? LANES + i - HALF : i;
        lower[i] = i & HALF ? LANES + i : i + HALF;
    }
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        if (!(r & HALF)) {
            const Vector above = x[r], below = x[r + HALF];
            x[r] = __builtin_shuffle(above, below, upper);
            x[r + HALF] = __builtin_shuffle(above, below, lower);
        }
    if constexpr (HALF > 1) transpose<HALF / 2>(x);
}

// A panel of B: LANES of its rows, as depth × LANES, padded with zeros.
void pack(Matrix b, Size row, Size rows, Size column, Size depth, Number *to) {
    const Size count = std::min<Size>(LANES, rows - row);
    if (b.down == 1) {
        if (count == LANES)
            for (Size i = 0; i < depth; i++) *(Vector *)(to + i * LANES) = *(const Vector *)b.at(row, column + i);
        else
            for (Size i = 0; i < depth; i++) *(Vector *)(to + i * LANES) = load(b.at(row, column + i), 0, count);
        return;
    }
    Size i = 0;
    for (; i + LANES <= depth; i += LANES) {
        Vector square[LANES];
        for (Size lane = 0; lane < LANES; lane++)
            square[lane] = lane < count ? *(const Vector *)b.at(row + lane, column + i) : Vector{};
        transpose<LANES / 2>(square);
        for (Size r = 0; r < LANES; r++) *(Vector *)(to + (i + r) * LANES) = square[r];
    }
    for (; i < depth; i++)
        for (Size lane = 0; lane < LANES; lane++)
            to[i * LANES + lane] = lane < count ? *b.at(row + lane, column + i) : 0;
}

// Rows of A: row after row, or where its columns are contiguous, as tiles of depth × ROWS.
void copy(Matrix a, Size row, Size count, Size column, Size depth, Number *to) {
    if (a.down == 1) {
        for (Size i = 0; i < depth; i++) {
            const Number *from = a.at(row, column + i);
            Size tile = 0;
            for (; tile + ROWS <= count; tile += ROWS)
                std::memcpy(to + tile * DEPTH + i * ROWS, from + tile, sizeof(Number) * ROWS);
            if (tile < count) std::memcpy(to + tile * DEPTH + i * ROWS, from + tile, sizeof(Number) * (count - tile));
        }
    } else
        for (Size r = 0; r < count; r++) std::memcpy(to + r * APART, a.at(row + r, column), sizeof(Number) * depth);
}

inline Number *aligned(Size count) {
    return (Number *)std::aligned_alloc(64, (sizeof(Number) * count + 63) / 64 * 64);
}

}  // namespace
