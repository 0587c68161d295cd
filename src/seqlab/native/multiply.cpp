// Products of large matrices, C = A Bᵀ + bias: the three products of a linear map, forward and backward. The bits of a
// number depend neither on other rows nor on the number of threads.

#include "tiles.h"

namespace {

constexpr Size COLUMNS = 2048;  // columns of C at a time

Number *scratch(Size count) {
    static thread_local Room kept;
    static thread_local Size size = 0;
    if (count > size) {
        kept.reset(aligned(count));
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
        static thread_local Room own(aligned(TALL * APART));
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
                        const auto times = A.down == 1 ? block<1, ROWS> : block<APART, 1>;
                        times(rows, height, {panels, depth}, depth, first, last, whole);
                    }
            }
        }
    }
    return !failed;
}
}
