// The Python interface. All work is done without the interpreter's lock; objects do not change once they are made.
#include "bindings.hpp"
#include "oddities.hpp"
#include "processors.hpp"
#include "terms.hpp"
#include "vectors.hpp"

namespace keyblock {
namespace {

// Of each odd text its number, its odd rows, and whether it is spelled oddly; texts of prose are left out.
nb::list oddities(const nb::list& texts) {
    nb::list found;
    for (size_t i = 0; i < texts.size(); ++i) {
        const nb::object text = nb::borrow(texts[i]);  // in case the list changes
        const Text view = text_of(text);
        Oddities odd;
        {
            nb::gil_scoped_release unlocked;
            odd = view.visit([](auto some) { return oddities_of(some); });
        }
        if (odd.spelled || !odd.rows.empty()) found.append(nb::make_tuple(i, Array(odd.rows).numpy(), odd.spelled));
    }
    return found;
}

// A TokenTable and the arrays that it uses.
class Encoder {
  public:
    using Table = nb::ndarray<const int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

    Encoder(Table table, Given<float> scales, Given<float> to_length_1)
        : kept_(std::move(table)), scales_(std::move(scales)), to_length_1_(std::move(to_length_1)),
          table_{kept_.data(), scales_.data(), to_length_1_.data(), kept_.shape(0), kept_.shape(1)} {
        if (scales_.size() != table_.vocabulary || to_length_1_.size() != table_.vocabulary)
            throw nb::value_error("there is not one scale for each row");
    }
    const TokenTable& table() const { return table_; }
    nb::object encode(Given<int32_t> ids, nb::ndarray<const int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu> bounds) const {
        const auto n_ids = static_cast<int32_t>(ids.size());
        const size_t n = bounds.shape(0), size = table_.dimensions;
        const int32_t *token = ids.data(), *bound = bounds.data();
        std::vector<int8_t> found(n * size);
        bool known = true;
        {
            nb::gil_scoped_release unlocked;
            for (int32_t i = 0; i < n_ids; ++i) known &= token[i] >= 0 && static_cast<size_t>(token[i]) < table_.vocabulary;
            for (size_t i = 0; i < 2 * n; i += 2) known &= 0 <= bound[i] && bound[i] <= bound[i + 1] && bound[i + 1] <= n_ids;
            std::vector<float> sum(size);
            for (size_t i = 0; known && i < n; ++i)
                table_.encode(token + bound[2 * i], static_cast<size_t>(bound[2 * i + 1] - bound[2 * i]), sum.data(), found.data() + i * size);
        }
        if (!known) throw nb::value_error("a token or a bound is out of range");
        return Array(found).numpy(size);
    }

  private:
    Table kept_;
    Given<float> scales_, to_length_1_;
    TokenTable table_;
};

void make_similar(Similar* self, const Encoder& encoder, Given<int32_t> ids, Given<float> weights) {
    bool known = ids.size() == weights.size();
    for (size_t i = 0; i < ids.size(); ++i) known &= ids(i) >= 0 && static_cast<size_t>(ids(i)) < encoder.table().vocabulary;
    if (!known) throw nb::value_error("a token is out of range, or has no weight");
    new (self) Similar(encoder.table(), ids.data(), weights.data(), ids.size());
}

nb::object term_keys(const nb::list& terms) {
    std::vector<int64_t> keys;
    for (nb::handle term : terms) {
        const std::vector<Code> codes = codes_of(term);
        keys.push_back(term_key(codes.data(), codes.size()));
    }
    return Array(keys).numpy();
}

}  // namespace
}  // namespace keyblock

NB_MODULE(_core, module) {
    using namespace keyblock;
    nb::set_leak_warnings(false);  // readers live as long as the process, and are no leaks
    constexpr const char* PROCESSORS[] = {"plain", "avx2", "avx512"};
    module.attr("PROCESSOR") = PROCESSORS[static_cast<int>(processor())];  // the kind of processor whose code runs here
    module.attr("INTERFACE") = 9;  // changes whenever older versions of keyblock cannot use the module
    bind_readers(module);
    bind_selection(module);
    nb::class_<Encoder>(module, "Encoder")
        .def(nb::init<Encoder::Table, Given<float>, Given<float>>(), "table"_a, "scales"_a, "to_length_1"_a)
        .def("encode", &Encoder::encode, "ids"_a, "bounds"_a);
    nb::class_<Similar>(module, "Similar").def("__init__", &make_similar, "encoder"_a, "ids"_a, "weights"_a, nb::keep_alive<1, 2>());
    module.def("oddities", &oddities, "texts"_a);
    module.def("term_keys", &term_keys, "terms"_a);
}
