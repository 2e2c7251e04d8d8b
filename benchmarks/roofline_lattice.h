// Messages on a lattice with 4 neighbours, in sweeps along its rows and its columns.
//
// A sweep is sequential along one axis and independent along the other. Arrays have the shape (tile, position
// along the sweep, label, lane), where lanes are neighbouring rows (or columns), so that all operations are
// on full vectors. Messages are probabilities; potentials are exponentiated once; with two labels everything
// is the ratio of the second to the first.
#pragma once
#include <array>
#include <vector>

#include "roofline_vectors.h"

enum class Power { one, half, any };  // the power rho: 1 is free, 1/2 a square root, others pow

struct Problem {
    int64_t height, width, labels, bytes, per_edge, with_gradient;
    double rho[2];
    std::vector<double> unary, tables[2], d_mu;
    int64_t edges(int axis) const { return axis == 0 ? height * (width - 1) : (height - 1) * width; }
};

template <class T, int K, Power P, bool PerEdge> class Lattice {
protected:
    static constexpr int N = K == 2 ? 1 : K;       // numbers per message
    static constexpr int M = K == 2 ? 3 : K * K;   // numbers per table; two labels: divided by the first
    static constexpr int bytes = widest;
    // Vectors per tile: enough to hide latencies, few enough to keep a tile in the cache. Measured.
    static constexpr int G = K == 2 ? 4 : bytes < 64 ? (K > 5 && K < 16 ? 1 : 2) : K > 16 && !PerEdge ? 2 : 1;
    // Whether a gradient keeps reciprocal messages instead of computing messages again. Memory is slow.
    static constexpr bool keeps_inverse = PerEdge && K > 5;
    using V = Vector<T, bytes>;
    static constexpr int W = bytes / sizeof(T), L = G * W;  // lanes per vector and per tile
    // Number of targets whose sums fit into registers.
    static constexpr int B = K <= 5                       ? K
                             : K % 8 == 0 && bytes == 64 ? 8
                             : K % 4 == 0                ? 4
                             : K % 7 == 0 && bytes == 64 ? 7
                             : K % 3 == 0                ? 3
                                                         : 1;

    // The sweeps along one axis. `field` is exp(unary) times the messages of the other axis; `unary` is
    // exp(unary). `reverse` is the message from the next position to the power rho - 1; unused for rho = 1.
    struct Axis {
        int64_t tiles, length;
        T rho;
        Array<T> unary{0}, field{0}, reverse{0}, tables{0};
        T shared[2][M];  // the table of forward and of backward messages
    };
    // Messages of one sweep, one place per edge: cavities, and where each edge has its own table and there are
    // more than two labels, reciprocal messages, which the gradient replaces by g. Cavities are scaled
    // such that the table times the cavity is the normalised message.
    struct Tape {
        Array<T> x[2]{Array<T>(0), Array<T>(0)}, inverse[2]{Array<T>(0), Array<T>(0)};
    };
    Axis axes[2];
    Array<T> arrived, divisor;  // forward messages of one tile to the powers rho and rho - 1

    static size_t place(const Axis &a, int64_t tile, int64_t position) {
        return (tile * a.length + position) * N * L;
    }

    static size_t edge_place(const Axis &a, int64_t tile, int64_t edge) {
        return (tile * (a.length - 1) + edge) * N * L;
    }

    static V *vectors(T *at) { return reinterpret_cast<V *>(at); }

    // The entry of a table, for two labels without the first; the source of a `backward` message is the
    // second label.
    static inline V entry(const Axis &axis, const V *table, int backward, int source, int target, int g) {
        if constexpr (PerEdge)
            return table[((backward ? target * K + source : source * K + target) - (K == 2)) * G + g];
        else
            return V{} + axis.shared[backward][source * K + target - (K == 2)];
    }

    // out(y) = sum_z table(z, y) x(z)
    static inline void multiply(const Axis &axis, const V *table, int backward, const V *x, V *out) {
        for (int first = 0; first < K; first += B) {
            V sum[B][G] = {};
#pragma GCC unroll 8
            for (int z = 0; z < K; ++z)
#pragma GCC unroll 8
                for (int y = 0; y < B; ++y)
#pragma GCC unroll 8
                    for (int g = 0; g < G; ++g)
                        sum[y][g] += entry(axis, table, backward, z, first + y, g) * x[z * G + g];
#pragma GCC unroll 8
            for (int y = 0; y < B; ++y)
#pragma GCC unroll 8
                for (int g = 0; g < G; ++g) out[(first + y) * G + g] = sum[y][g];
        }
    }

    static inline void prefetch(const V *at, int n) {
        for (int i = 0; i < n * bytes; i += 64) __builtin_prefetch(reinterpret_cast<const char *>(at) + i);
    }

    // Store a number that is not needed soon, past the caches.
    static inline void keep(V *at, V value) {
#ifdef __AVX512F__
        if constexpr (bytes == 64) return _mm512_stream_si512(reinterpret_cast<__m512i *>(at), __m512i(value));
#endif
        *at = value;
    }

    // One message from the cavity x: m(y) = sum_z table(z, y) x(z), normalised. Stores its powers rho and
    // rho - 1; the next cavity starts from the former.
    template <bool Taped>
    static inline void send(const Axis &axis, const V *table, int backward, V *x, V *q, V *divisor, V *tape_x,
                            V *tape_inverse) {
        if constexpr (K == 2) {
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
                const V up = entry(axis, table, backward, 1, 1, g) * x[g];
                const V above = entry(axis, table, backward, 0, 1, g) + up;
                const V below = 1 + entry(axis, table, backward, 1, 0, g) * x[g];
                if constexpr (Taped) tape_x[g] = x[g];
                if constexpr (P == Power::one) q[g] = above / below;
                if constexpr (P == Power::half) {  // one root for both powers
                    const V scale = inverse_root<T>(V(above * below));
                    q[g] = above * scale, divisor[g] = below * scale;
                }
                if constexpr (P == Power::any) {
                    const V ratio = above / below;
                    q[g] = power<T>(ratio, axis.rho), divisor[g] = q[g] / ratio;
                }
            }
            return;
        }
        V total[G] = {};
        multiply(axis, table, backward, x, q);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) total[g] += q[n * G + g];
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) total[g] = 1 / total[g];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
                const int i = n * G + g;
                const V m = q[i] * total[g];
                V reciprocal{};
                if constexpr (P == Power::one) q[i] = m;
                if constexpr (P == Power::one && Taped && keeps_inverse) reciprocal = inverse<T>(m);
                if constexpr (P == Power::half) {
                    divisor[i] = inverse_root<T>(m), q[i] = m * divisor[i];
                    reciprocal = divisor[i] * divisor[i];
                }
                if constexpr (P == Power::any) {
                    reciprocal = inverse<T>(m);
                    q[i] = power<T>(m, axis.rho), divisor[i] = q[i] * reciprocal;
                }
                if constexpr (Taped) keep(tape_x + i, x[i] * total[g]);
                if constexpr (Taped && keeps_inverse) keep(tape_inverse + i, reciprocal);
            }
    }

    static inline void cavity(const V *field, const V *divisor, const V *q, V *x) {
#pragma GCC unroll 8
        for (int i = 0; i < N * G; ++i) {
            x[i] = field[i] * q[i];
            if constexpr (P != Power::one) x[i] *= divisor[i];
        }
    }

    static V *table(Axis &a, int64_t tile, int64_t edge) {
        return PerEdge ? vectors(a.tables.at((tile * (a.length - 1) + edge) * M * L)) : nullptr;
    }

    static V *tape_x(Axis &a, Tape *tape, int backward, int64_t tile, int64_t edge) {
        return tape ? vectors(tape->x[backward].at(edge_place(a, tile, edge))) : nullptr;
    }

    static V *tape_inverse(Axis &a, Tape *tape, int backward, int64_t tile, int64_t edge) {
        return tape && K > 2 ? vectors(tape->inverse[backward].at(edge_place(a, tile, edge))) : nullptr;
    }

    template <bool Taped> void forward(Axis &a, int64_t tile, Tape *tape) {
        V q[N * G], x[N * G];
        std::fill_n(q, N * G, V{} + 1);
        for (int64_t p = 0; p + 1 < a.length; ++p) {
            const size_t here = place(a, tile, p), next = (p + 1) * N * L;
            cavity(vectors(a.field.at(here)), vectors(a.reverse.at(P == Power::one ? 0 : here)), q, x);
            send<Taped>(a, table(a, tile, p), 0, x, q, vectors(divisor.at(P == Power::one ? 0 : next)),
                        tape_x(a, tape, 0, tile, p), tape_inverse(a, tape, 0, tile, p));
            std::copy_n(q, N * G, vectors(arrived.at(next)));
        }
    }

    // The backward sweep. The product of both messages and exp(unary) goes to the other axis, block by block.
    template <bool Taped> void backward(Axis &a, int64_t tile, Axis &other, Tape *tape) {
        alignas(64) T block[L * N * L];
        V q[N * G], x[N * G];
        std::fill_n(block, L * N * L, T(1));
        std::fill_n(q, N * G, V{} + 1);
        for (int64_t p = a.length - 1;; --p) {
            const size_t here = place(a, tile, p);
            const V *sent = vectors(arrived.at(p * N * L)), *unary = vectors(a.unary.at(here));
            V *product = vectors(block + p % L * N * L);
#pragma GCC unroll 8
            for (int i = 0; i < N * G; ++i) product[i] = unary[i] * sent[i] * q[i];
            if (p % L == 0) cross<false>(vectors(block), other, other.field, p / L, tile * L);
            if (p == 0) break;
            V *behind = vectors(a.reverse.at(P == Power::one ? 0 : here - N * L));
            cavity(vectors(a.field.at(here)), vectors(divisor.at(P == Power::one ? 0 : p * N * L)), q, x);
            send<Taped>(a, table(a, tile, p - 1), 1, x, q, behind, tape_x(a, tape, 1, tile, p - 1),
                        tape_inverse(a, tape, 1, tile, p - 1));
        }
    }

    // Transpose a block of positions and lanes to lanes and positions of the other axis.
    template <bool Add>
    static void cross(const V *block, const Axis &to, Array<T> &out, int64_t tile, int64_t first) {
        const int64_t rows = std::min<int64_t>(L, to.length - first);
        for (int n = 0; n < N; ++n)
            for (int i = 0; i < G && i * W < rows; ++i)
                for (int j = 0; j < G; ++j) {
                    V square[W];
#pragma GCC unroll 16
                    for (int s = 0; s < W; ++s) square[s] = block[((j * W + s) * N + n) * G + i];
                    transpose<W / 2>(square);
                    const size_t at = place(to, tile, first + i * W) + n * L + j * W;
                    for (int s = 0; s < W && i * W + s < rows; ++s) {
                        V *target = vectors(out.at(at + s * N * L));
                        *target = Add ? *target + square[s] : square[s];
                    }
                }
    }

    template <bool Taped> void sweep(int axis, Tape *tape) {
        for (int64_t tile = 0; tile < axes[axis].tiles; ++tile) {
            forward<Taped>(axes[axis], tile, tape);
            backward<Taped>(axes[axis], tile, axes[1 - axis], tape);
        }
    }

    size_t cell(int axis, int64_t line, int64_t p) const { return place(axes[axis], line / L, p) + line % L; }

public:
    explicit Lattice(const Problem &problem) : arrived(0), divisor(0) {
        const int64_t sizes[2] = {problem.height, problem.width};
        for (int axis = 0; axis < 2; ++axis) {
            Axis &a = axes[axis];
            a.tiles = (sizes[axis] + L - 1) / L, a.length = sizes[1 - axis], a.rho = T(problem.rho[axis]);
            const size_t size = size_t(a.tiles * a.length) * N * L;
            a.unary = Array<T>(size), a.field = Array<T>(size);
            a.reverse = Array<T>(P == Power::one ? N * L : size);
            a.tables = Array<T>(PerEdge ? size_t(a.tiles * (a.length - 1)) * M * L : 0);
            for (int64_t line = 0; line < sizes[axis]; ++line)
                for (int64_t p = 0; p < a.length; ++p) fill(problem, axis, line, p);
        }
        const size_t longest = size_t(std::max(axes[0].length, axes[1].length)) * N * L;
        arrived = Array<T>(longest), divisor = Array<T>(P == Power::one ? N * L : longest);
        restart();
    }

    void restart() {
        for (Axis &a : axes) {
            std::copy_n(a.unary.at(0), a.unary.size, a.field.at(0));
            std::fill_n(a.reverse.at(0), a.reverse.size, T(1));
        }
    }

    void iterate(int n) {
        for (int i = 0; i < n; ++i) sweep<false>(0, nullptr), sweep<false>(1, nullptr);
    }

    // The product of exp(unary) and all four messages; each field has exp(unary) and two of them.
    void read(const Problem &problem, std::vector<double> &mu) {
        for (int64_t r = 0; r < problem.height; ++r)
            for (int64_t c = 0; c < problem.width; ++c) {
                double *out = &mu[(r * problem.width + c) * K], total = 0;
                for (int x = 0; x < K; ++x) {
                    out[x] = 1;
                    if (K > 2 || x > 0) {
                        const size_t n = (x - (K == 2)) * L, h = cell(0, r, c) + n, v = cell(1, c, r) + n;
                        out[x] = double(*axes[0].field.at(h)) * *axes[1].field.at(v) / *axes[0].unary.at(h);
                    }
                    total += out[x];
                }
                for (int x = 0; x < K; ++x) out[x] /= total;
            }
    }

private:
    void fill(const Problem &problem, int axis, int64_t line, int64_t p) {
        Axis &a = axes[axis];
        const int64_t row = axis == 0 ? line : p, column = axis == 0 ? p : line;
        const double *theta = &problem.unary[(row * problem.width + column) * K];
        const double base = K == 2 ? theta[0] : *std::max_element(theta, theta + K);
        for (int n = 0; n < N; ++n)
            *a.unary.at(cell(axis, line, p) + n * L) = T(std::exp(theta[n + (K == 2)] - base));
        if (p + 1 == a.length) return;
        const int64_t edge = axis == 0 ? row * (problem.width - 1) + column : row * problem.width + column;
        const double *pair = &problem.tables[axis][(PerEdge ? edge : 0) * K * K];
        const double top = K == 2 ? pair[0] : *std::max_element(pair, pair + K * K);
        for (int x = 0; x < K; ++x)
            for (int y = 0; y < K; ++y) {
                if (K == 2 && x + y == 0) continue;
                const T value = T(std::exp((pair[x * K + y] - top) / problem.rho[axis]));
                const int64_t n = x * K + y - (K == 2), tile = line / L;
                a.shared[0][n] = a.shared[1][y * K + x - (K == 2)] = value;
                if (PerEdge) *a.tables.at(((tile * (a.length - 1) + p) * M + n) * L + line % L) = value;
            }
    }
};
