// softmax(scale · q kᵀ) v for each head, and its gradients: float32, in training and evaluation.
//
// A block of queries has all of its scores at once, so that softmax is a plain one. If causal, the scores of later
// positions are never computed. The bits of a query's output do not depend on other queries or heads, nor on keys that
// it does not attend to.
//
// B rows · T queries · N keys · H heads · G heads of keys · K width of a head

#include "tiles.h"

namespace {

constexpr Size BLOCK = 8 * ROWS;  // queries at a time

struct Heads {  // (B, heads, length, K), with contiguous numbers in the last dimension
    float *numbers;
    Size row, head, step;

    Matrix of(Size b, Size h) const { return {numbers + b * row + h * head, step, 1}; }
    float *at(Size b, Size h, Size t) const { return numbers + b * row + h * head + t * step; }
};

struct Call {
    Heads q, k, v, y;
    float *sums;  // (B, H, T): log Σ exp of a query's scores
    const float *bias;  // (B, N), added to the scores, or null
    Size B, H, G, T, N, K;
    float scale;
    int causal, threads;
};

struct Slopes {
    Heads y, q, k, v;
};

Matrix turned(Matrix x) { return {x.numbers, x.across, x.down}; }

struct Packed {  // a matrix B (rows × depth) in slices of DEPTH: the panels of the first slice, of the second, ...
    const float *numbers;
    Size rows, depth;
};

Packed packed(Matrix b, Size rows, Size depth, float *to) {
    for (Size top = 0; top < depth; top += DEPTH) {
        const Size part = std::min(DEPTH, depth - top);
        for (Size row = 0; row < rows; row += LANES) pack(b, row, rows, top, part, to + top * rounded(rows) + row * part);
    }
    return {to, rows, depth};
}

// C = or += A Bᵀ for the first `depth` columns of both and the first `columns` rows of B
void times(Matrix a, Size rows, Size depth, Packed b, Size columns, float *c, Size stride, bool add, float *copied) {
    const Size count = rounded(columns) / LANES;
    for (Size top = 0; top < depth; top += DEPTH) {
        const Size part = std::min(DEPTH, depth - top);
        const Panels panels{b.numbers + top * rounded(b.rows), std::min(DEPTH, b.depth - top)};
        for (Size row = 0; row < rows; row += TALL) {
            const Size height = std::min(TALL, rows - row);
            copy(a, row, height, top, part, copied);
            const auto multiply = a.down == 1 ? block<1, ROWS> : block<APART, 1>;
            multiply(copied, height, panels, part, 0, count, {c + row * stride, stride, columns, nullptr, !add && !top});
        }
    }
}

// The number of keys that a query may attend to.
Size seen(const Call &call, Size t) { return call.causal ? std::min(call.N, t + 1) : call.N; }

// Scores become e^(scale · s + bias − shift), and 0 where nothing is attended to → their sum
float exponentials(float *s, Size count, Size wide, float scale, const float *bias, float shift) {
    Vector sum = {};
    over_columns(count, [&](Size j, auto whole) {
        Vector here = load(s, j, count, whole) * scale - shift;
        if (bias) here += load(bias, j, count, whole);
        here = here < -80 ? Vector{} : exponential(here);
        if (!whole) here = inside(j, count) ? here : Vector{};
        sum += here;
        store(here, s, j, count, whole);
    });
    std::fill(s + count, s + wide, 0.0f);
    return total(sum);
}

float most(const float *s, Size count, float scale, const float *bias) {
    Vector most = Vector{} - INFINITY;
    over_columns(count, [&](Size j, auto whole) {
        Vector here = load(s, j, count, whole) * scale;
        if (bias) here += load(bias, j, count, whole);
        if (!whole) here = inside(j, count) ? here : Vector{} - INFINITY;
        most = here <= most ? most : here;  // not-a-number replaces -∞, so that it is not taken for no key at all
    });
    return largest(most);
}

struct Rooms {  // of one thread
    Room copied, keys, values, features, scores, slopes, queries, upstream;
    bool made;

    Rooms(const Call &call, bool back) {
        const Size by_key = rounded(call.N) * call.K, by_feature = rounded(call.K) * call.N;
        const Size square = BLOCK * rounded(call.N), queried = BLOCK * rounded(call.K);
        copied.reset(aligned(TALL * APART));
        keys.reset(aligned(by_key)), values.reset(aligned(std::max(by_key, by_feature))), scores.reset(aligned(square));
        made = copied && keys && values && scores;
        if (back) {
            features.reset(aligned(by_feature)), slopes.reset(aligned(square));
            queries.reset(aligned(queried)), upstream.reset(aligned(queried));
            made = made && features && slopes && queries && upstream;
        }
    }
};

void forward(const Call &call, Rooms &rooms, Size b, Size h) {
    const Size g = h * call.G / call.H, N = call.N, K = call.K, wide = rounded(N);
    float *scores = rooms.scores.get();
    const float *bias = call.bias ? call.bias + b * N : nullptr;
    const Packed by_key = packed(call.k.of(b, g), N, K, rooms.keys.get());
    const Packed values = packed(turned(call.v.of(b, g)), K, N, rooms.values.get());
    for (Size first = 0; first < call.T; first += BLOCK) {
        const Size rows = std::min(BLOCK, call.T - first), keys = seen(call, first + rows - 1);
        const Matrix q = call.q.of(b, h);
        times({q.at(first, 0), q.down, 1}, rows, K, by_key, keys, scores, wide, false, rooms.copied.get());
        for (Size r = 0; r < rows; r++) {
            float *s = scores + r * wide;
            const Size count = seen(call, first + r);
            const float top = most(s, count, call.scale, bias);
            const float sum = top == -INFINITY ? 0 : exponentials(s, count, keys, call.scale, bias, top);
            if (!sum) std::fill(s, s + keys, 0.0f);
            const float share = sum ? 1 / sum : 0;
            over_columns(count, [&](Size j, auto whole) { store(load(s, j, count, whole) * share, s, j, count, whole); });
            call.sums[(b * call.H + h) * call.T + first + r] = sum ? top + std::log(sum) : INFINITY;
        }
        times({scores, wide, 1}, rows, keys, values, K, call.y.at(b, h, first), call.y.step, false, rooms.copied.get());
    }
}

// p = softmax, ∂v = pᵀ ∂y, ∂p = ∂y vᵀ, ∂s = scale · p ∘ (∂p − Σ ∂y ∘ y), ∂q = ∂s k, ∂k = ∂sᵀ q
void backward(const Call &call, const Slopes &slopes, Rooms &rooms, Size b, Size h) {
    const Size g = h * call.G / call.H, N = call.N, K = call.K, wide = rounded(N);
    float *p = rooms.scores.get(), *ds = rooms.slopes.get(), *copied = rooms.copied.get();
    const float *bias = call.bias ? call.bias + b * N : nullptr;
    const Packed by_key = packed(call.k.of(b, g), N, K, rooms.keys.get());
    const Packed values = packed(call.v.of(b, g), N, K, rooms.values.get());
    const Packed by_feature = packed(turned(call.k.of(b, g)), K, N, rooms.features.get());
    for (Size first = 0; first < call.T; first += BLOCK) {
        const Size rows = std::min(BLOCK, call.T - first), keys = seen(call, first + rows - 1);
        const Matrix q{call.q.at(b, h, first), call.q.step, 1}, dy{slopes.y.at(b, h, first), slopes.y.step, 1};
        times(q, rows, K, by_key, keys, p, wide, false, copied);
        times(dy, rows, K, values, keys, ds, wide, false, copied);
        for (Size r = 0; r < rows; r++) {
            float *own = p + r * wide, *slope = ds + r * wide;
            const Size count = seen(call, first + r);
            const float *y = call.y.at(b, h, first + r), *up = dy.at(r, 0);
            Vector products = {};
            for (Size j = 0; j < K; j += LANES) products += load(y, j, K) * load(up, j, K);
            const float mean = total(products), sum = call.sums[(b * call.H + h) * call.T + first + r];
            exponentials(own, count, keys, call.scale, bias, sum);
            if (sum == INFINITY) std::fill(own, own + keys, 0.0f);
            over_columns(count, [&](Size j, auto whole) {
                const Vector here = call.scale * load(own, j, count, whole) * (load(slope, j, count, whole) - mean);
                store(here, slope, j, count, whole);
            });
            std::fill(slope + count, slope + keys, 0.0f);
        }
        times({ds, wide, 1}, rows, keys, by_feature, K, slopes.q.at(b, h, first), slopes.q.step, false, copied);
        const Packed queries = packed(turned(q), K, rows, rooms.queries.get());
        times({ds, 1, wide}, keys, rows, queries, K, slopes.k.at(b, g, 0), slopes.k.step, true, copied);
        const Packed upstream = packed(turned(dy), K, rows, rooms.upstream.get());
        times({p, 1, wide}, keys, rows, upstream, K, slopes.v.at(b, g, 0), slopes.v.step, true, copied);
    }
}

// body(rooms, number) for every number, by all threads; whether there was memory for it
template <typename Body> bool each(const Call &call, bool back, Size count, Body body) {
    int failed = 0;
#pragma omp parallel num_threads(call.threads) reduction(| : failed)
    {
        const Flushed flushed;
        Rooms rooms(call, back);
        failed = !rooms.made;
#pragma omp for schedule(dynamic)
        for (Size number = 0; number < count; number++)
            if (rooms.made) body(rooms, number);
    }
    return !failed;
}

}  // namespace

extern "C" {

// Both return whether there was memory for it.
int attend(const Call *call) {
    return each(*call, false, call->B * call->H,
                [&](Rooms &rooms, Size number) { forward(*call, rooms, number / call->H, number % call->H); });
}

// The slopes of keys and values begin at zero: the heads that share them add theirs.
int attend_back(const Call *call, const Slopes *slopes) {
    const Size shared = call->H / call->G;
    return each(*call, true, call->B * call->G, [&](Rooms &rooms, Size number) {
        const Size first = number % call->G * shared;
        for (Size h = first; h < first + shared; h++) backward(*call, *slopes, rooms, number / call->G, h);
    });
}
}
