// The softmax loss and its gradient, row by row: a row stays in the nearest caches while it is read three times.

#include "vectors.h"

namespace {

// Probabilities below e⁻⁶⁹ = 10⁻³⁰ of the largest become zero: products with smaller ones are denormal, and arithmetic
// with denormal numbers is a hundred times slower.
constexpr float LEAST = -69;

// Logits become ∂loss/∂logits = (p − (1 − ε) y − ε / V) · scale → (1 − ε) (−log p_target) + ε mean_k (−log p_k)
float row(float *x, const float *bias, Size target, float scale, float smoothing, Size count) {
    Vector most = Vector{} - INFINITY, sums = {};
    over_columns(count, [&](Size j, auto whole) {
        Vector here = load(x, j, count, whole);
        if (bias) {
            here += load(bias, j, count, whole);
            store(here, x, j, count, whole);
        }
        sums += here;
        if (!whole) here = inside(j, count) ? here : Vector{} - INFINITY;
        most = here > most ? here : most;
    });
    const float top = largest(most), mean = total(sums) / count, chosen = x[target];
    sums = Vector{};
    over_columns(count, [&](Size j, auto whole) {
        const Vector below = load(x, j, count, whole) - top;
        Vector here = below < LEAST ? Vector{} : exponential(below);
        if (!whole) here = inside(j, count) ? here : Vector{};
        sums += here;
        store(here, x, j, count, whole);
    });
    const float sum = total(sums), share = scale / sum, rest = scale * smoothing / count;
    over_columns(count, [&](Size j, auto whole) { store(load(x, j, count, whole) * share - rest, x, j, count, whole); });
    x[target] -= scale * (1 - smoothing);
    const float all = top + std::log(sum);
    return (1 - smoothing) * (all - chosen) + (smoothing ? smoothing * (all - mean) : 0);
}

}  // namespace

extern "C" void slopes(float *logits, const float *bias, const Size *targets, const float *scales, float *losses, Size rows,
                       Size vocabulary, float smoothing, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Size n = 0; n < rows; n++)
        losses[n] = row(logits + n * vocabulary, bias, targets[n], scales ? scales[n] : 1, smoothing, vocabulary);
}
