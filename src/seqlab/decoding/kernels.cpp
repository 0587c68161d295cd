// Kernels for decoding on the CPU: linear maps of a few rows, blocks that read one new position per row, and the choice
// of the best tokens.

#include "linear.h"
#include <utility>

namespace {

// ------------------------------------------------------------------ norms and attention

struct Norm {
    const float *weight, *bias;
    float epsilon;
    int centred;
};

// (x − mean) / √(variance + ε) ∘ weight + bias, by all threads; if not centred, x / √(mean of squares + ε) ∘ weight.
void normalise(const Norm &norm, const float *x, float *y, Size rows, Size width) {
#pragma omp for schedule(static)
    for (Size row = 0; row < rows; row++) {
        const float *from = x + row * width;
        Vector sums = {}, squares = {};
        if (norm.centred)
            for (Size i = 0; i < width; i += LANES) sums += load(from, i, width);
        const float mean = total(sums) / width;
        for (Size i = 0; i < width; i += LANES) {
            Vector apart = load(from, i, width) - mean;
            for (Size l = width - i; l < LANES; l++) apart[l] = 0;
            squares += apart * apart;
        }
        const float scale = 1 / std::sqrt(total(squares) / width + norm.epsilon);
        for (Size i = 0; i < width; i += LANES) {
            Vector z = (load(from, i, width) - mean) * scale;
            if (norm.bias)
                store(z * load(norm.weight, i, width) + load(norm.bias, i, width), y + row * width, i, width);
            else
                store(z * load(norm.weight, i, width), y + row * width, i, width);
        }
    }
}

// softmax(q · kⱼ / √K + biasⱼ) over the positions j so far, and the mean of vⱼ under it; kⱼ begins at key(j), vⱼ at
// value(j), and the bias may be null. `weights` is a buffer of rounded-up length; on return it holds the weights, to be
// divided by the returned sum. A head consists of VECTORS full vectors, padded with zeros beyond its width; 0 means any
// number, with bounds checks.
template <int VECTORS, typename Key, typename Value>
float head(const float *q, Key key, Value value, const float *bias, float *y, float *weights, Size length, Size width) {
    const auto part = [=](const float *from, Size i) { return VECTORS ? *(const Vector *)(from + i) : load(from, i, width); };
    const Size vectors = VECTORS ? VECTORS : rounded(width) / LANES;
    const float scale = 1 / std::sqrt((float)width);
    Vector own[VECTORS ? VECTORS : 1];
    for (int i = 0; i < VECTORS; i++) own[i] = load(q, i * LANES, width);
    float most = -INFINITY;
    for (Size j = 0; j < length; j++) {
        Vector products = {};
        const float *k = key(j);
        for (Size i = 0; i < vectors; i++)
            products += (VECTORS ? own[VECTORS ? i : 0] : load(q, i * LANES, width)) * part(k, i * LANES);
        weights[j] = scale * total(products);
        if (bias) weights[j] += bias[j];
        most = std::max(most, weights[j]);
    }
    Vector sums = {};
    for (Size j = 0; j < length; j += LANES) {
        Vector here = exponential(load(weights, j, length) - most);
        for (Size l = length - j; l < LANES; l++) here[l] = 0;
        *(Vector *)(weights + j) = here;
        sums += here;
    }
    const float sum = total(sums);
    constexpr int AT_ONCE = VECTORS ? VECTORS : 4;
    for (Size first = 0; first < width; first += AT_ONCE * LANES) {
        Vector means[AT_ONCE] = {};
        for (Size j = 0; j < length; j++) {
            const float *v = value(j);
            for (int p = 0; p < AT_ONCE; p++) means[p] += weights[j] * part(v, first + p * LANES);
        }
        for (int p = 0; p < AT_ONCE && first + p * LANES < width; p++)
            store(means[p] / sum, y, first + p * LANES, width);
    }
    return sum;
}

// The same; `whole` says whether full vectors can be read.
template <typename Key, typename Value>
float any_head(const float *q, Key key, Value value, const float *bias, float *y, float *weights, Size length, Size width,
               bool whole) {
    switch (whole ? rounded(width) / LANES : 0) {
        case 1: return head<1>(q, key, value, bias, y, weights, length, width);
        case 2: return head<2>(q, key, value, bias, y, weights, length, width);
        case 3: return head<3>(q, key, value, bias, y, weights, length, width);
        case 4: return head<4>(q, key, value, bias, y, weights, length, width);
        case 8: return head<8>(q, key, value, bias, y, weights, length, width);
        default: return head<0>(q, key, value, bias, y, weights, length, width);
    }
}

// Keys and values in pages of 16 positions, (layers, 2, groups, 16, K) each, K padded with zeros to a multiple of 16,
// for `time` new positions of each row: position t of a row is in cell cells[row, t], and cell c is entry c % 16 of
// page c / 16. A row ends at `ends`; new positions beyond that are padding. If positions rotate queries and keys, cos
// and sin (rows, time, turned) hold the angles; if positions change scores, bias (rows, heads, time, length) holds the
// changes.
struct Cache {
    float *const *pages;
    const Size *cells, *positions, *ends;
    Size capacity, time, layer;
    const float *cos, *sin, *bias;
    Size turned, length;
};

constexpr Size PAGE = 16;

// Rotate the numbers i and i + turned of a head by an angle: (a, b) → (a cos − b sin, b cos + a sin).
inline void rotate(float *x, const float *cos, const float *sin, Size turned) {
    for (Size i = 0; i < turned; i++) {
        const float a = x[i], b = x[i + turned];
        x[i] = a * cos[i] - b * sin[i], x[i + turned] = b * cos[i] + a * sin[i];
    }
}

// By all threads; qkv (rows, heads + 2 groups, K) → y (rows, heads, K), where a row is one new position. The heads of a
// group share its keys and values.
void attend(float *qkv, const Cache &cache, float *y, float *weights, Size room, Size rows, Size heads, Size groups, Size width) {
    weights += omp_get_thread_num() * room;
    const Size members = heads / groups, time = cache.time, each = (width + 15) / 16 * 16, apart = groups * PAGE * each;
    const auto padding = [&](Size row) { return cache.positions[row] >= cache.ends[row / time]; };
    const auto place = [&](Size row, Size group) {
        const Size *cells = cache.cells + row / time * cache.capacity, first = 2 * cache.layer * apart + group * PAGE * each;
        return [=, pages = cache.pages](Size j) { return pages[cells[j] / PAGE] + first + cells[j] % PAGE * each; };
    };
    const auto write = [&](Size row, Size group) {
        if (padding(row)) return;
        float *own = qkv + row * (heads + 2 * groups) * width, *k = own + (heads + group) * width, *v = k + groups * width;
        if (cache.turned) {
            const float *cos = cache.cos + row * cache.turned, *sin = cache.sin + row * cache.turned;
            rotate(k, cos, sin, cache.turned);
            for (Size n = 0; n < members; n++) rotate(own + (group * members + n) * width, cos, sin, cache.turned);
        }
        float *to = place(row, group)(cache.positions[row]);
        std::memcpy(to, k, sizeof(float) * width);
        std::memcpy(to + apart, v, sizeof(float) * width);
    };
    if (time > 1) {  // later positions read the keys and values of earlier ones
#pragma omp for schedule(static)
        for (Size n = 0; n < rows * groups; n++) write(n / groups, n % groups);
    }
#pragma omp for schedule(static)
    for (Size n = 0; n < rows * groups; n++) {
        const Size row = n / groups, group = n % groups, length = cache.positions[row] + 1;
        if (time == 1) write(row, group);
        for (Size h = group * members; h < (group + 1) * members; h++) {
            float *to = y + (row * heads + h) * width;
            if (padding(row)) {
                std::fill(to, to + width, 0.f);
                continue;
            }
            const Size number = (row / time * heads + h) * time + row % time;
            const float *bias = cache.bias ? cache.bias + number * cache.length : nullptr;
            const float *q = qkv + (row * (heads + 2 * groups) + h) * width;
            const auto key = place(row, group);
            const auto value = [=](Size j) { return key(j) + apart; };
            any_head(q, key, value, bias, to, weights, length, width, true);
        }
    }
}

// Keys and values of sources, (sources, groups, capacity, K) each, the number of real positions of each, and the source
// of each row. Attention weights are written to `shown` (rows, heads, time, capacity), unless it is null; it starts
// with zeros.
struct Source {
    const float *keys, *values;
    const Size *lengths, *owner;
    Size capacity;
    float *shown;
};

// By all threads; q (rows, heads, K) → y of the same shape, `time` rows per row of the search. `y` may be `q`.
void attend_source(const float *q, const Source &source, float *y, float *weights, Size room, Size rows, Size time, Size heads,
          Size groups, Size width) {
    weights += omp_get_thread_num() * room;
#pragma omp for schedule(static)
    for (Size n = 0; n < rows * heads; n++) {
        const Size owner = source.owner[n / heads / time], group = n % heads / (heads / groups);
        const Size first = (owner * groups + group) * source.capacity * width;
        const auto key = [=, keys = source.keys](Size j) { return keys + first + j * width; };
        const auto value = [=, values = source.values](Size j) { return values + first + j * width; };
        const Size length = source.lengths[owner];
        const float sum = any_head(q + n * width, key, value, nullptr, y + n * width, weights, length, width, width % LANES == 0);
        if (source.shown) {
            const Size row = n / heads, number = (row / time * heads + n % heads) * time + row % time;
            for (Size j = 0; j < length; j++) source.shown[number * source.capacity + j] = weights[j] / sum;
        }
    }
}

// ------------------------------------------------------------------ the best tokens

constexpr Size PIECE = 1024;  // tokens per piece; a piece stays in the nearest cache while it is read twice

// The largest values so far: largest first, and equal ones in order of appearance.
struct Best {
    float *values;
    Size *tokens, count;

    void clear() const {
        for (Size i = 0; i < count; i++) values[i] = -INFINITY, tokens[i] = 0;
    }
    float bar() const { return values[count - 1]; }
    void add(float value, Size token) const {
        if (!(value > bar())) return;
        Size place = count - 1;
        for (; place > 0 && value > values[place - 1]; place--)
            values[place] = values[place - 1], tokens[place] = tokens[place - 1];
        values[place] = value, tokens[place] = token;
    }
};

// The best of a piece, whose first token is `first`, and Σ exp(x − the best), which is NaN if any number is.
float read_piece(const float *x, Size length, Size first, const Best &best) {
    constexpr Size AT_ONCE = 8 * LANES;
    best.clear();
    for (Size i = 0; i < length; i += AT_ONCE) {
        if (i + AT_ONCE <= length) {
            Vector most = *(const Vector *)(x + i);
            for (Size l = LANES; l < AT_ONCE; l += LANES) {
                const Vector here = *(const Vector *)(x + i + l);
                most = here > most ? here : most;
            }
            if (!(largest(most) > best.bar())) continue;
        }
        for (Size l = i; l < std::min(i + AT_ONCE, length); l++) best.add(x[l], first + l);
    }
    const float most = best.values[0] == -INFINITY ? 0 : best.values[0];
    Vector sums = {};
    Size i = 0;
    for (; i + LANES <= length; i += LANES) sums += exponential(*(const Vector *)(x + i) - most);
    if (i < length) {
        const Vector here = exponential(load(x, i, length) - most);
        sums += inside(i, length) ? here : Vector{};
    }
    return total(sums);
}

// For each row its `count` best tokens with their values, and log Σ exp, which is not finite if there is no
// distribution. Pieces of all rows' logits are made and read one after the other, by several threads: made(first,
// length, room) returns the start of the first row and the distance between rows.
template <typename Made>
int ranked(Made made, float *values, Size *tokens, float *totals, Size rows, Size vocabulary, Size count, int threads) {
    const Size pieces = (vocabulary + PIECE - 1) / PIECE;
    const Room sums = room(rows * pieces), most = room(rows * pieces * count), logits = room(threads * rows * PIECE);
    const std::unique_ptr<Size, Free> which((Size *)std::malloc(sizeof(Size) * rows * pieces * count));
    if (!sums || !most || !which || !logits) return 1;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (Size piece = 0; piece < pieces; piece++) {
            const Size first = piece * PIECE, length = std::min(PIECE, vocabulary - first);
            const auto [x, apart] = made(first, length, logits.get() + omp_get_thread_num() * rows * PIECE);
            for (Size row = 0; row < rows; row++) {
                const Size n = row * pieces + piece;
                const Best own = {most.get() + n * count, which.get() + n * count, count};
                sums.get()[n] = read_piece(x + row * apart, length, first, own);
            }
        }
#pragma omp for schedule(static)
        for (Size row = 0; row < rows; row++) {
            const Best best = {values + row * count, tokens + row * count, count};
            best.clear();
            const float *own = most.get() + row * pieces * count;
            for (Size i = 0; i < pieces * count; i++) best.add(own[i], which.get()[row * pieces * count + i]);
            double sum = 0;
            for (Size piece = 0; piece < pieces; piece++) {
                const float here = own[piece * count], part = sums.get()[row * pieces + piece];
                sum += here == -INFINITY ? 0 * part : part * std::exp((double)here - best.values[0]);
            }
            totals[row] = best.values[0] + std::log(sum);
        }
    }
    return 0;
}

}  // namespace

extern "C" {

int lanes() { return LANES; }

// All functions that return int return 0, or 1 if memory runs out.

// The best of logits (rows, vocabulary).
int best(const float *logits, float *values, Size *tokens, float *totals, Size rows, Size vocabulary, Size count, int threads) {
    const auto there = [=](Size first, Size, float *) { return std::pair(logits + first, vocabulary); };
    return ranked(there, values, tokens, totals, rows, vocabulary, count, threads);
}

// The best outputs of a map, without ever storing all of them: the same as `linear` and `best`, to the bit.
int best_outputs(const Map *map, const float *x, float *values, Size *tokens, float *totals, Size rows, Size count, int threads) {
    const Room turned = room(rows * map->inputs);
    if (!turned) return 1;
    turn(x, turned.get(), rows, map->inputs);
    const auto made = [&](Size first, Size length, float *y) {
        const Map part = {map->panels + first * map->inputs, map->bias + first, map->inputs, length};
        const Size panels = rounded(length) / LANES;
        for (Size panel = 0; panel < panels; panel += GROUP)
            group(part, turned.get(), y, rows, panel, std::min<Size>(GROUP, panels - panel), {});
        return std::pair((const float *)y, length);
    };
    return ranked(made, values, tokens, totals, rows, map->outputs, count, threads);
}

// Attention to sources: q and y (rows, heads, K), `time` rows per row of the search.
int attend_to_source(const Source *source, const float *q, float *y, Size rows, Size time, Size heads, Size groups, Size width, int threads) {
    const Size longest = rounded(source->capacity);
    const Room weights = room(longest * threads);
    if (!weights) return 1;
#pragma omp parallel num_threads(threads)
    attend_source(q, *source, y, weights.get(), longest, rows, time, heads, groups, width);
    return 0;
}

int linear(const Map *map, const float *x, float *y, Size rows, int activation, int threads) {
    const Room turned = room(rows * map->inputs);
    if (!turned) return 1;
#pragma omp parallel num_threads(threads)
    apply(*map, x, turned.get(), y, rows, {(Activation)activation, nullptr});
    return 0;
}

// C = A B for each of `sources`: A (rows, inner), B (inner, columns), or its transpose (columns, inner). Each number of
// C is one chain of operations whose order depends only on its own row and column; trailing zeros in A change nothing.
void product(const float *a, const float *b, float *c, Size sources, Size rows, Size inner, Size columns, int transposed,
             int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Size n = 0; n < sources * rows; n++) {
        const float *own = a + n * inner, *other = b + n / rows * inner * columns;
        float *to = c + n * columns;
        if (transposed) {
            for (Size j = 0; j < columns; j++) {
                Vector sums = {};
                for (Size i = 0; i < inner; i += LANES) sums += load(own, i, inner) * load(other + j * inner, i, inner);
                to[j] = total(sums);
            }
        } else {
            for (Size j = 0; j < columns; j += LANES) {
                Vector sums = {};
                for (Size i = 0; i < inner; i++) sums += own[i] * load(other + i * columns, j, columns);
                store(sums, to, j, columns);
            }
        }
    }
}

struct Block {
    Norm norm_attend;
    Map query_key_value, output;
    Norm norm_cross_attend;
    Map query, cross_attend_output;
    Norm norm_feed;
    Map gate, expand, contract;  // without a gate, it has no outputs
    Size heads, groups, head_width, activation, norm_first;
};

// Read new positions, x and y (rows, width), `cache->time` rows per row of a search: x + attend(norm(x)), then
// + cross_attend(norm(x)) if there is a source, then + feed(norm(x)); or norm(x + attend(x)) and so on.
int block(const Block *block, const Cache *cache, const Source *source, const float *x, float *y, Size rows, int threads) {
    const Size width = block->output.outputs, hidden = block->expand.outputs, gates = block->gate.outputs;
    const Size heads = block->heads, groups = block->groups, each = block->head_width, inner = heads * each;
    const Size longest = rounded(std::max(cache->capacity, source ? source->capacity : 0));
    const Size widest = std::max({width, inner, hidden, block->query_key_value.outputs});
    const Room rooms[] = {room(rows * std::max(width, inner)), room(rows * widest), room(rows * widest),
                          room(longest * threads), room(std::max<Size>(1, rows * gates))};
    for (const Room &one : rooms)
        if (!one) return 1;
    float *narrow = rooms[0].get(), *wide = rooms[1].get(), *turned = rooms[2].get(), *weights = rooms[3].get();
    float *gated = rooms[4].get();
    const bool before = block->norm_first;
    const Activation activation = (Activation)block->activation;
#pragma omp parallel num_threads(threads)
    {
        if (before) normalise(block->norm_attend, x, narrow, rows, width);
        apply(block->query_key_value, before ? narrow : x, turned, wide, rows);
        attend(wide, *cache, narrow, weights, longest, rows, heads, groups, each);
        apply(block->output, narrow, turned, y, rows, {NONE, x});
        if (!before) normalise(block->norm_attend, y, y, rows, width);
        if (source) {
            if (before) normalise(block->norm_cross_attend, y, narrow, rows, width);
            apply(block->query, before ? narrow : y, turned, wide, rows);
            attend_source(wide, *source, narrow, weights, longest, rows, cache->time, heads, groups, each);
            apply(block->cross_attend_output, narrow, turned, y, rows, {NONE, y});
            if (!before) normalise(block->norm_cross_attend, y, y, rows, width);
        }
        if (before) normalise(block->norm_feed, y, narrow, rows, width);
        const float *fed = before ? narrow : y;
        if (gates) {
            apply(block->gate, fed, turned, gated, rows, {activation, nullptr});
            apply(block->expand, fed, turned, wide, rows);
#pragma omp for schedule(static)
            for (Size n = 0; n < rows * hidden; n++) wide[n] *= gated[n];
        } else {
            apply(block->expand, fed, turned, wide, rows, {activation, nullptr});
        }
        apply(block->contract, wide, turned, y, rows, {NONE, y});
        if (!before) normalise(block->norm_feed, y, y, rows, width);
    }
    return 0;
}
}
