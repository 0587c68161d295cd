// Products of large matrices, C = A Bᵀ + bias: the three products of a linear map, forward and backward.
//
// Goto & van de Geijn 2008, Anatomy of high-performance matrix multiplication: panels of B are copied to where they
// follow each other and stay in the caches while the rows of A pass by. Each number of C is one chain
// bias + a₀b₀ + a₁b₁ + …, in this order, so its bits depend neither on other rows nor on the number of threads.

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
constexpr Size COLUMNS = 2048;      // columns of C at a time
constexpr Size APART = DEPTH + 2 * LANES;  // between rows of A, so that they do not compete for the same lines of a cache

struct Matrix {
    const Number *numbers;
    Size down, across;  // element (row, column) is numbers[row · down + column · across]

    const Number *at(Size row, Size column) const { return numbers + row * down + column * across; }
};

struct Part {  // of C: the numbers from here on, with `columns` left in a row
    Number *c;
    Size stride, columns;
    const Number *bias;
    bool begin;  // nothing has been added yet
};

// C += A B for R rows and P panels. A number of A is a[row · DOWN + i · ACROSS].
template <int R, int P, Size DOWN, Size ACROSS> inline void tile(const Number *a, const Number *panels, Size depth, Part part) {
    Vector sums[R][P];
    for (int p = 0; p < P; p++) {
        const Vector bias = part.bias ? load(part.bias, p * LANES, part.columns) : Vector{};
        for (int r = 0; r < R; r++)
            sums[r][p] = part.begin ? bias : load(part.c + r * part.stride, p * LANES, part.columns);
    }
    for (Size i = 0; i < depth; i++) {
        Vector b[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; p++) b[p] = *(const Vector *)(panels + (p * depth + i) * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
            for (int p = 0; p < P; p++) sums[r][p] += b[p] * a[r * DOWN + i * ACROSS];
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P; p++) store(sums[r][p], part.c + r * part.stride, p * LANES, part.columns);
}

template <int P, Size DOWN, Size ACROSS> void rows(const Number *a, Size count, const Number *panels, Size depth, Part part) {
    Size row = 0;
    const auto each = [&](auto tall) {
        constexpr int R = decltype(tall)::value;
        for (; row + R <= count; row += R) {
            Part own = part;
            own.c += row * part.stride;
            tile<R, P, DOWN, ACROSS>(a + row / ROWS * ROWS * (DOWN == 1 ? DEPTH : DOWN) + row % ROWS * DOWN, panels, depth, own);
        }
    };
    each(std::integral_constant<int, ROWS>());
    if constexpr (ROWS > 4) each(std::integral_constant<int, 4>());
    each(std::integral_constant<int, 1>());
}

template <Size DOWN, Size ACROSS> void block(const Number *a, Size count, const Number *panels, Size depth, Size first, Size last, Part part) {
    for (Size panel = first; panel < last; panel += WIDE) {
        Part own = part;
        own.c += panel * LANES, own.columns -= panel * LANES;
        if (own.bias) own.bias += panel * LANES;
        const Number *here = panels + panel * depth * LANES;
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
        for (Size lane = 0; lane < LANES; lane++) to[i * LANES + lane] = lane < count ? *b.at(row + lane, column + i) : 0;
}

// Rows of A: row after row, or where its columns are contiguous, as tiles of depth × ROWS.
void copy(Matrix a, Size row, Size count, Size column, Size depth, Number *to) {
    if (a.down == 1) {
        for (Size i = 0; i < depth; i++) {
            const Number *from = a.at(row, column + i);
            Size tile = 0;
            for (; tile + ROWS <= count; tile += ROWS) std::memcpy(to + tile * DEPTH + i * ROWS, from + tile, sizeof(Number) * ROWS);
            if (tile < count) std::memcpy(to + tile * DEPTH + i * ROWS, from + tile, sizeof(Number) * (count - tile));
        }
    } else
        for (Size r = 0; r < count; r++) std::memcpy(to + r * APART, a.at(row + r, column), sizeof(Number) * depth);
}

Number *scratch(Size count) {
    static thread_local Room kept;
    static thread_local Size size = 0;
    if (count > size) {
        kept.reset((Number *)std::aligned_alloc(64, (sizeof(Number) * count + 63) / 64 * 64));
        size = kept ? count : 0;
    }
    return kept.get();
}

}  // namespace

extern "C" {

// C (m × n) = A (m × k) Bᵀ (k × n) + bias, or C += A Bᵀ if `add`. In A and B, rows or columns are contiguous.
// Returns whether there was memory for it.
int multiply(const Number *a, Size a_down, Size a_across, const Number *b, Size b_down, Size b_across, const Number *bias,
             Number *c, Size m, Size n, Size k, int add, int threads) {
    const Matrix A{a, a_down, a_across}, B{b, b_down, b_across};
    Number *panels = scratch((std::min(rounded(n), COLUMNS) + LANES) * DEPTH);
    if (!panels) return 0;
    int failed = 0;
    const Size blocks = (m + TALL - 1) / TALL;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        const Flushed flushed;
        static thread_local Room own((Number *)std::aligned_alloc(64, sizeof(Number) * TALL * APART));
        Number *rows = own.get();
        failed = !rows;
        for (Size left = 0; left < n; left += COLUMNS) {
            const Size wide = std::min(COLUMNS, n - left), count = (wide + LANES - 1) / LANES;
            const Size parts = std::min<Size>((count + WIDE - 1) / WIDE, std::max<Size>(1, 4 * threads / blocks));
            const Size each = ((count + parts - 1) / parts + WIDE - 1) / WIDE * WIDE;
            for (Size top = 0; top < k; top += DEPTH) {
                const Size depth = std::min(DEPTH, k - top);
#pragma omp for schedule(static)
                for (Size panel = 0; panel < count; panel++)
                    pack(B, left + panel * LANES, n, top, depth, panels + panel * depth * LANES);
#pragma omp for collapse(2) schedule(dynamic)
                for (Size number = 0; number < blocks; number++)
                    for (Size part = 0; part < parts; part++) {
                        const Size row = number * TALL, height = std::min(TALL, m - row);
                        const Size first = part * each, last = std::min(count, first + each);
                        if (first >= last || !rows) continue;
                        copy(A, row, height, top, depth, rows);
                        const Part whole{c + row * n + left, n, wide, bias ? bias + left : nullptr, !add && top == 0};
                        if (A.down == 1)
                            block<1, ROWS>(rows, height, panels, depth, first, last, whole);
                        else
                            block<APART, 1>(rows, height, panels, depth, first, last, whole);
                    }
            }
        }
    }
    return !failed;
}
}
