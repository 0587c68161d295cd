// The tanh form of gelu and its slope, number by number.

#include "linear.h"

extern "C" {

void forward(const float *x, float *y, Size count, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const Flushed flushed;
#pragma omp for schedule(static)
        for (Size first = 0; first < count; first += LANES) store(gelu(load(x, first, count)), y, first, count);
    }
}

// With s = σ(2 u): y = x s and ∂y/∂x = s + x s (1 − s) 2 u', where u = √(2/π) (x + 0.044715 x³)
void backward(const float *x, const float *upstream, float *to, Size count, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const Flushed flushed;
#pragma omp for schedule(static)
        for (Size first = 0; first < count; first += LANES) {
            const Vector at = load(x, first, count), square = at * at;
            const Vector s = 1 / (1 + exponential(-1.5957691216f * at * (1 + 0.044715f * square)));
            const Vector slope = s + at * s * (1 - s) * 1.5957691216f * (1 + 3 * 0.044715f * square);
            store(load(upstream, first, count) * slope, to, first, count);
        }
    }
}
}
