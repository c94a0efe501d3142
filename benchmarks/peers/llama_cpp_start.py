"""llama.cpp from the start of a process to a first token, for benchmarks/first_token.py. It imports
nothing but llama.cpp: all counts."""

import argparse

import llama_cpp

NUM_TOKENS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repack", action="store_true")
    parser.add_argument("path")
    parser.add_argument("num_threads", type=int)
    parser.add_argument("prompt")
    args = parser.parse_args()
    llama_cpp.llama_backend_init()
    model_parameters = llama_cpp.llama_model_default_params()
    model_parameters.use_extra_bufts = args.repack
    model = llama_cpp.llama_model_load_from_file(args.path.encode(), model_parameters)
    assert model, args.path
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = NUM_TOKENS
    parameters.n_threads = parameters.n_threads_batch = args.num_threads
    context = llama_cpp.llama_init_from_model(model, parameters)
    assert context, args
    vocab = llama_cpp.llama_model_get_vocab(model)
    text = args.prompt.encode()
    tokens = (llama_cpp.llama_token * NUM_TOKENS)()
    count = llama_cpp.llama_tokenize(vocab, text, len(text), tokens, NUM_TOKENS, True, True)
    assert count > 0, count
    status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, count))
    assert status == 0, status
    sampler = llama_cpp.llama_sampler_init_greedy()
    print(llama_cpp.llama_sampler_sample(sampler, context, -1), flush=True)


if __name__ == "__main__":
    main()
