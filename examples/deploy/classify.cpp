// An exported model from C++: zeros in, the largest output and its place out.
#include "model.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

int main() {
    model *raw = nullptr;
    if (int code = model_create("model.weights", &raw)) {
        std::fprintf(stderr, "%s\n", model_error(code));
        return 1;
    }
    std::unique_ptr<model, decltype(&model_destroy)> instance(raw, model_destroy);

    std::vector<float> input(model_input(0)->bytes / sizeof(float));
    std::vector<float> output(model_output(0)->bytes / sizeof(float));
    const void *inputs[] = {input.data()};
    void *outputs[] = {output.data()};
    if (int code = model_run(instance.get(), inputs, outputs)) {
        std::fprintf(stderr, "%s\n", model_error(code));
        return 1;
    }
    auto best = std::max_element(output.begin(), output.end());
    std::printf("class %d: %f\n", int(best - output.begin()), *best);
}
