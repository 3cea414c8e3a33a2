"""The language models: blocks cut from texts, the parameters that are trained, and refusals."""

import gzip
import importlib.util
import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.learn.engines import choose, engines
from hpctrip.learn.evaluate import LOSS_SCALE, evaluate
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten
from hpctrip.learn.workloads.llm import PARTS, Decoder, Llm, pack
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

SHARED = Path(__file__).parents[2].parent / "shared/data/shakespeare"
ADAPTERS = 3 * (4 * 8 * (96 + 96) + 3 * 8 * (96 + 256))
"""Parameters of rank 8 on the seven linear layers of each of the tiny model's three blocks."""
LINE = "It was the best of times, it was the worst of times. "


@pytest.fixture(scope="session")
def causal():
    from hpctrip.learn.models import causal

    return causal


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def quick(cache, monkeypatch):
    monkeypatch.setenv("HPCTRIP_CACHE", str(cache))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A JSON file of three owners."""
    path = tmp_path_factory.mktemp("texts") / "texts.json"
    path.write_text(json.dumps({name: (LINE + name) * 8 for name in ("Ann", "Bob", "Cyd")}))
    return path


@pytest.fixture
def workload(causal, texts):
    """`workload(**keys)`: quick to prepare."""
    return lambda **keys: Llm(**{"data": str(texts), "block_tokens": 8, "pretrain_steps": 0} | keys)


@pytest.fixture(scope="session")
def gpt2(causal):
    """`gpt2(vocab_size)`: a tiny GPT-2 with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tiny = {"n_positions": 16, "n_embd": 12, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    return lambda vocab_size: GPT2LMHeadModel(GPT2Config(vocab_size=vocab_size, **tiny))


@pytest.fixture(scope="session")
def directory(gpt2, tmp_path_factory):
    """A directory as save_pretrained writes it: a model, and a tokenizer of single characters."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,", "?"]
    tokenizer = Tokenizer(models.WordLevel({s: n for n, s in enumerate(symbols)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("model")
    gpt2(len(symbols)).save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(path)
    return path


@pytest.fixture
def spoiled(directory, tmp_path):
    """A copy of the directory, to be damaged."""
    return Path(shutil.copytree(directory, tmp_path / "spoiled"))


def refusal(act):
    with pytest.raises(InputError) as error:
        act()
    return str(error.value)


# Texts


def test_a_text_of_ten_blocks_gives_one_to_the_base_and_holds_the_last_out():
    arrays = pack([np.arange(21), np.arange(100, 121)], block_tokens=2, with_base=True)
    assert arrays["base_blocks"].tolist() == [[0, 1, 2], [100, 101, 102]]
    assert sorted(arrays["test_blocks"].tolist()) == [[18, 19, 20], [118, 119, 120]]
    assert arrays["train_blocks"][:8, 0].tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    assert arrays["train_groups"].tolist() == [0] * 8 + [1] * 8
    for part in ("base", "test"):
        assert (arrays[f"{part}_blocks"][:, 0] // 100 == arrays[f"{part}_groups"]).all()


def test_without_pretraining_the_base_takes_nothing_and_short_texts_give_nothing():
    arrays = pack([np.arange(21), np.arange(2)], block_tokens=2, with_base=False)
    assert [len(arrays[f"{part}_blocks"]) for part in PARTS] == [0, 9, 1]


def test_every_token_of_a_block_predicts_the_next(workload):
    train = workload().task(0).train
    assert train.inputs.shape == train.labels.shape == (len(train), 8)
    assert np.array_equal(train.inputs[:, 1:], train.labels[:, :-1])
    assert bytes(train.inputs[0].astype(np.uint8)) == LINE[:8].encode()
    assert bytes(train.labels[0].astype(np.uint8)) == LINE[1:9].encode()


def test_owners_are_the_names_in_a_json_file_and_the_files_of_a_folder(workload, texts, tmp_path):
    assert np.unique(workload().task(0).train.groups).tolist() == [0, 1, 2]
    (tmp_path / "texts.json.gz").write_bytes(gzip.compress(texts.read_bytes()))
    (tmp_path / "d.txt").write_text(LINE * 8)
    (tmp_path / "notes.md").write_text("no text of ours")
    task = workload(data=str(tmp_path)).task(0)
    assert np.unique(task.train.groups).tolist() == [0, 1, 2, 3]
    assert "texts from" in task.source and not task.synthetic


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("a.txt", "", ["a.txt: the text of 'a.txt' is empty"]),
        ("a.txt", "short", ["the 1 text(s) with 5 characters give no block of 8 tokens", "81 tokens"]),
        ("a.json", "{}", ["a.json: no roles in it"]),
        ("a.json", '{"Ann": " "}', ["a.json: the text of 'Ann' is empty"]),
        ("a.md", "text", ["holds no files .txt, .txt.gz, .json, .json.gz"]),
    ],
)
def test_bad_texts_are_named(name, content, fragments, workload, tmp_path):
    (tmp_path / name).write_text(content)
    report = refusal(lambda: workload(data=str(tmp_path)).prepare_data(0))
    assert len(report.splitlines()) == 1
    for fragment in fragments:
        assert fragment in report


# Models


def test_only_adapters_are_trained_and_a_fresh_model_is_the_base(workload, causal):
    task = workload().task(0)
    models = [task.build_model() for _ in range(2)]
    assert len(flatten(models[0])) == ADAPTERS == 43_776
    tokens = torch.arange(16).view(2, 8)
    torch.testing.assert_close(models[0](tokens), causal.tiny(Decoder().config)(input_ids=tokens).logits)
    a, b = (dict(model.named_parameters()) for model in models)
    for name, p in a.items():
        assert (p is b[name]) == (not p.requires_grad), name  # frozen tensors are held once
    full = workload(adapter="full").task(0).build_model()
    assert len(flatten(full)) == sum(p.numel() for p in causal.tiny(Decoder().config).parameters()) == 357_024


def test_a_rank_holds_the_base_of_a_directory_once_where_it_was_loaded(workload, directory):
    task = workload(model=str(directory)).task(0)
    model = task.build_model()
    loaded = {name: p.data_ptr() for name, p in model.named_parameters() if not p.requires_grad}
    work = LocalWork(lr=1e-3, batch_size=2, local_epochs=1, optimizer="adamw", weight_decay=0.0)
    for engine in engines().values():
        params = flatten(model)
        [*engine(task, work, model=model).train(params, [[np.arange(2)]])]
        evaluate(task, model, params, [slice(0, 2)])
        task.build_model()
        assert loaded == {name: p.data_ptr() for name, p in model.named_parameters() if not p.requires_grad}


def test_rank_and_layers_are_the_inputs(workload):
    lora = {"rank": 2, "target_modules": ["q_proj", "v_proj"]}
    assert len(flatten(workload(lora=lora).task(0).build_model())) == 3 * 2 * 2 * (96 + 96)
    report = refusal(lambda: workload(lora={"target_modules": ["nose"]}).task(0))
    assert report.startswith("workload.lora.target_modules = ['nose']: ") and len(report.splitlines()) == 1


def test_the_base_is_the_same_for_every_seed_and_pretraining_made_it_better(workload, causal):
    pretrained = workload(pretrain_steps=15, adapter="full", block_tokens=4)
    task = pretrained.task(0)
    params = flatten(task.build_model())
    assert torch.equal(params, flatten(pretrained.task(1).build_model()))
    random = flatten(workload(adapter="full").task(0).build_model())
    counts = [evaluate(task, task.build_model(), p, [slice(0, 5)]) for p in (params, random)]
    losses = [count["loss_sum"] / LOSS_SCALE / count["seen"] for count in counts]
    assert losses[0] < losses[1] - 1
    assert "pretrained here for 15 steps" in task.source


def test_adapters_differ_with_torchs_generator_only(workload):
    task, drawn = workload().task(0), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(flatten(task.build_model()))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


SMALL = {"layers": 2, "heads": 2, "width": 16, "feed_forward": 24, "vocabulary": 300}
SCRATCH = {"model": "scratch", "adapter": "full", "decoder": SMALL}


def test_a_decoder_from_scratch_has_the_sizes_of_the_input_and_its_weights_are_the_seeds(workload):
    task, drawn = workload(**SCRATCH).task(0), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(flatten(task.build_model()))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    blocks = 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16)
    assert len(drawn[0]) == 300 * 16 + blocks + 16 and task.num_classes == 300
    assert task.sequential_only == "" and "model of random weights" in task.source
    tiny = workload(adapter="full", decoder=SMALL).task(0).build_model()
    assert len(flatten(tiny)) == len(drawn[0])


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"model": "scratch"}, 'has nothing to adapt: set adapter = "full"'),
        ({"decoder": SMALL | {"heads": 3}}, "width = 16 is no multiple of twice the heads = 3"),
        ({"decoder": SMALL | {"vocabulary": 255}}, "greater than or equal to 256"),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(keys, problem, workload):
    with pytest.raises(ValueError, match=problem):
        workload(**keys)


@pytest.mark.skipif(not SHARED.exists(), reason="no Shakespeare texts here")
def test_bytes_of_a_real_text_are_the_tokens_of_a_decoder(workload):
    file = SHARED / "tinyshakespeare_input.txt"
    task = workload(**SCRATCH, data=str(file), block_tokens=32).task(0)
    first = task.train.inputs[0]
    assert bytes(first.astype(np.uint8)) == file.read_bytes()[:32]
    assert not task.synthetic and file.name in task.source


def test_a_saved_model_is_loaded_and_its_dropout_never_acts(workload, directory, causal):
    from transformers import GPT2LMHeadModel

    task = workload(model=str(directory)).task(0)
    model = task.build_model().train()
    tokens = torch.tensor(task.train.inputs[:2])
    assert bytes(task.train.inputs[0].astype(np.uint8)) == bytes([34, 19, 52, 22, 0, 18, 52, 19])  # It was t
    expected = GPT2LMHeadModel.from_pretrained(directory).eval()(input_ids=tokens).logits
    for _ in range(2):
        assert torch.allclose(model(tokens), expected, atol=1e-6)
    assert task.num_classes == 56 and str(directory) in task.source


WORK = LocalWork(lr=0.01, batch_size=4, optimizer="adamw")
SITES = [[np.random.default_rng(site).integers(50, size=3 + 4 * site)] for site in range(3)]


@pytest.mark.parametrize("adapter", ["lora", "full"])
@pytest.mark.parametrize("model", ["tiny", "directory"])
def test_the_engines_agree_and_learn(model, adapter, workload, directory):
    task = workload(adapter=adapter, model=str(directory) if model == "directory" else "tiny").task(0)
    assert task.sequential_only == ""
    torch.manual_seed(0)
    params = flatten(task.build_model())
    sequential, stacked = (
        [replace(u, delta=u.delta.clone()) for u in engine(task, WORK).train(params, SITES)]
        for engine in engines().values()
    )
    for one, other in zip(sequential, stacked, strict=True):
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-4)
        # AdamW's first steps are lr * sign(gradient): where a gradient is 0 but for rounding, its sign is chance.
        assert (one.delta - other.delta).norm() < 1e-3 * one.delta.norm()
    # the longer a site trains, the lower its mean loss
    assert sequential[2].train_loss < sequential[0].train_loss


def test_what_vmap_cannot_map_is_left_to_the_loop_and_the_reason_is_said(causal):
    class Impatient(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, tokens):
            return tokens * self.weight if self.weight.item() > 0 else tokens

    reason = causal.why_not_stacked(Impatient)
    assert reason.startswith("torch.func.vmap cannot map this model: ") and len(reason.splitlines()) == 1
    assert choose("auto", "cuda", reason) == (engines()["sequential"], reason)
    assert choose("sequential", "cuda", reason)[0] is engines()["sequential"]
    assert f'engine.name = "stacked": {reason}' in refusal(lambda: choose("stacked", "cpu", reason))


def test_a_run_carries_the_adapters_alone_and_records_the_perplexity(trained):
    run = trained(
        "workload={kind='llm', block_tokens=16, pretrain_steps=2, sentences={roles=10, characters=400}}",
        "partition.kind=natural",
        "network.update_bytes=auto",
        "train.local_steps=1",
        "stop.max_rounds=1",
    )
    assert run.meta["num_params"] == ADAPTERS and run.meta["update_bytes"] == 4 * ADAPTERS
    assert np.allclose(run.rounds["eval_perplexity"], np.exp(run.rounds["eval_loss"]), rtol=1e-12)
    assert "synthetic" in run.meta["data_source"] and "digest" in run.meta["data_source"]


@pytest.mark.parametrize(
    ("model", "adapter"),
    [*product(["tiny", "directory"], ["lora", "full"]), ("scratch", "full")],
)
def test_the_libraries_load_the_exported_folder_and_find_the_accuracy_of_the_run(
    adapter, model, workload, directory, texts, hpctrip, tmp_path
):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = str(directory) if model == "directory" else model
    run, out = tmp_path / "run.h5", tmp_path / "model"
    lines = [
        f"workload={{kind='llm', data='{texts}', model='{place}', adapter='{adapter}'}}",
        "workload={block_tokens=8, pretrain_steps=0}",
        "partition.kind=natural",
        "sites.num_sites=3",
        "policy.kind=all",
        "train={local_steps=4, lr=0.03}",
        "stop={target_accuracy=1.0, max_rounds=2}",
    ]
    ended = hpctrip("run", *(part for line in lines for part in ("-o", line)), "--out", run)
    assert ended.code == 0, ended.err
    ended = hpctrip("export", run, "--model", out)
    assert ended.code == 0, ended.err
    task = workload(model=place, adapter=adapter).task(0)
    if adapter == "full":
        loaded, untrained = AutoModelForCausalLM.from_pretrained(out), task.build_model().model
        assert model != "directory" or AutoTokenizer.from_pretrained(out)("It")["input_ids"] == [34, 19]
    else:
        base = (
            task.build_model().model.unload()
            if model == "tiny"
            else AutoModelForCausalLM.from_pretrained(place)
        )
        loaded, untrained = PeftModel.from_pretrained(base, out), task.build_model().model
    accuracy, before = (
        float(
            (
                m.eval()(input_ids=torch.tensor(task.test.inputs)).logits.argmax(-1).numpy()
                == task.test.labels
            ).mean()
        )
        for m in (loaded, untrained)
    )
    assert accuracy == pytest.approx(open_run(run).rounds["accuracy"].iloc[-1]) != pytest.approx(before)


def test_a_resumed_fine_tuning_ends_with_the_same_bits(tmp_path, tiny_workloads, tiny, trained, hpctrip):
    half, llm = tmp_path / "half.h5", tiny_workloads["llm"]
    lines = (f"-o{line}" for line in (*llm, "stop.max_rounds=1"))
    assert hpctrip("run", tiny, *lines, "--out", half).code == 0
    assert hpctrip("resume", half, "-o", "stop.max_rounds=2").code == 0
    resumed, whole = open_run(half), trained(*llm, "stop.max_rounds=2")
    assert verify(resumed) == [] and diff(resumed, whole) == []
    assert resumed.meta["stop_reason"] == whole.meta["stop_reason"]


def test_other_models_have_no_folder(hpctrip, tiny, tmp_path):
    run = tmp_path / "run.h5"
    assert hpctrip("run", tiny, "-o", "stop.max_rounds=1", "--out", run).code == 0
    ended = hpctrip("export", run, "--model", tmp_path / "model")
    assert ended.code == 2 and "name a file for it that ends in .safetensors" in ended.err
    assert not (tmp_path / "model").exists()


# Four bits


@pytest.fixture(scope="session")
def llama(directory, tmp_path_factory):
    """A directory with the same tokenizer and a Llama, whose linear layers fill blocks of 64 numbers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = Path(shutil.copytree(directory, tmp_path_factory.mktemp("llama") / "model"))
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(4)
    LlamaForCausalLM(LlamaConfig(vocab_size=56, max_position_embeddings=16, **size)).save_pretrained(path)
    return path


@pytest.fixture
def quantised(llama):
    """`quantised()`: the base in 4 bits, loaded by transformers alone."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return lambda: AutoModelForCausalLM.from_pretrained(
        llama, dtype=torch.float32, quantization_config=config, device_map={"": "cpu"}
    )


def test_adapters_over_four_bits_are_trained_as_by_a_plain_loop_of_peft(workload, llama, quantised):
    from bitsandbytes.nn import Linear4bit
    from peft import LoraConfig, get_peft_model

    task, parts = workload(model=str(llama), adapter="qlora").task(0), [np.arange(20) % 16]
    model = task.build_model()
    assert sum(isinstance(module, Linear4bit) for module in model.modules()) == 2 * 7
    params = flatten(model)
    (update,) = engines()["sequential"](task, WORK).train(params, [parts])
    config = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules="all-linear")
    plain = get_peft_model(
        quantised(), config
    ).train()  # no dropout; bitsandbytes may lose gradients in evaluation
    weights = [p for p in plain.parameters() if p.requires_grad]
    torch.nn.utils.vector_to_parameters(params.clone(), weights)
    optimizer = torch.optim.AdamW(weights, lr=WORK.lr, weight_decay=0.0)
    losses = []
    for batch in torch.from_numpy(parts[0]).split(WORK.batch_size):
        tokens, labels = (torch.tensor(a[batch]) for a in (task.train.inputs, task.train.labels))
        loss = torch.nn.functional.cross_entropy(
            plain(input_ids=tokens).logits.flatten(0, 1), labels.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    delta = torch.nn.utils.parameters_to_vector(weights).detach() - params
    assert losses[-1] < losses[0] and update.loss_after == pytest.approx(losses[-1], rel=1e-3)
    assert (update.delta - delta).norm() < 1e-2 * delta.norm()


@pytest.mark.mpi
def test_adapters_have_the_same_bits_on_any_ranks_and_those_over_four_bits_load_in_peft(
    workload, llama, quantised, texts, hpctrip, launch, trained, tiny, tiny_workloads, caplog, tmp_path
):
    """One launch for both models, because each rank loads their libraries."""
    from peft import PeftModel

    one, three, out = tmp_path / "one.h5", tmp_path / "three.h5", tmp_path / "model"
    lines = [
        f"workload={{kind='llm', data='{texts}', model='{llama}', adapter='qlora', block_tokens=8}}",
        *("partition.kind=natural", "sites.num_sites=3", "policy.kind=all"),
        *("train={local_steps=4, lr=0.03}", "stop={target_accuracy=1.0, max_rounds=2}"),
    ]
    arguments = [part for line in lines for part in ("-o", line)]
    ended = hpctrip("run", *arguments, "--out", one)
    assert ended.code == 0 and "4-bit base is slow on a CPU" in caplog.text, ended.err
    pretrained = (*tiny_workloads["llm"], "stop.max_rounds=2")
    commands = {
        "three": ["run", *arguments, "--out", three],
        "pretrained": [
            "run",
            tiny,
            *(part for line in pretrained for part in ("-o", line)),
            "--out",
            tmp_path / "pretrained.h5",
        ],
    }
    launched = launch.commands(3, tmp_path, commands)
    assert launched.ended.code == 0, launched.ended.err + "".join(map(launched.output, commands, ["err"] * 2))
    for name, expected in (("three", open_run(one)), ("pretrained", trained(*pretrained))):
        run = launched.run(name)
        assert run.meta["num_ranks"] == 3 and diff(run, expected) == []
        assert run.meta["params_digest"] == expected.meta["params_digest"]
    assert hpctrip("export", one, "--model", out).code == 0
    task = workload(model=str(llama), adapter="qlora").task(0)
    loaded = PeftModel.from_pretrained(quantised(), out).eval()
    predicted = loaded(input_ids=torch.tensor(task.test.inputs)).logits.argmax(-1).numpy()
    assert (predicted == task.test.labels).mean() == pytest.approx(open_run(one).rounds["accuracy"].iloc[-1])


# Refusals


def test_four_bits_need_bitsandbytes(workload, directory, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "bitsandbytes" else find_spec(name)
    )
    report = refusal(lambda: workload(model=str(directory), adapter="qlora").prepare_data(0))
    assert report.startswith('workload.adapter = "qlora": ') and "[qlora]" in report


def removed(*names):
    return lambda folder: [path.unlink() for name in names for path in folder.glob(name)]


def shortened(name, num_bytes):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-num_bytes])


def configured(**keys):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | keys))
        (folder / "own.py").write_text("raise SystemExit('code of the directory was run')")

    return change


def only_a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_a_tensor(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors.pop(next(name for name in tensors if "c_fc.weight" in name))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


OWN_CODE = {
    "model_type": "own",
    "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
}


@pytest.mark.parametrize(
    ("damage", "fragment"),
    [
        (shortened("config.json", 20), "cannot be loaded ("),
        (configured(n_layer="one"), "cannot be loaded ("),
        (configured(n_embd=24), "tensors of the model, e.g. transformer."),
        (configured(**OWN_CODE), "cannot be loaded ("),
        (shutil.rmtree, "there is no directory"),
        (removed("config.json"), "has no config.json"),
        (only_a_pickle, "has no weights as .safetensors (pickles can run code, and are not read)"),
        (shortened("model.safetensors", 100), "cannot be loaded ("),
        (without_a_tensor, "lack 1 tensors of the model, e.g. transformer.h.0.mlp.c_fc.weight"),
        (removed("tokenizer*"), "has no tokenizer, e.g. tokenizer.json"),
    ],
)
def test_a_directory_that_is_not_whole_is_refused(damage, fragment, spoiled, workload):
    damage(spoiled)
    report = refusal(lambda: workload(model=str(spoiled)).task(0))
    assert report.startswith("workload.model: ") and fragment in report and len(report.splitlines()) == 1
    assert str(spoiled) in report


def test_blocks_longer_than_the_model_takes_are_refused(workload, directory):
    report = refusal(lambda: workload(model=str(directory), block_tokens=17).task(0))
    assert report.startswith("workload.block_tokens = 17: the model takes at most 16")


def test_a_tokenizer_of_another_model_is_refused(workload, spoiled, gpt2):
    gpt2(vocab_size=10).save_pretrained(spoiled)
    report = refusal(lambda: workload(model=str(spoiled)).task(0))
    assert "its tokenizer gave token" in report and "the model knows 10 tokens" in report


@pytest.mark.skipif(not SHARED.is_dir(), reason="no texts in ../shared/data/shakespeare")
def test_real_plays_have_a_thousand_owners(workload):
    task = workload(data=str(SHARED / "shakespeare_by_role.json.gz"), block_tokens=128).task(0)
    assert 700 < len(np.unique(task.train.groups)) <= 1070
    assert 28_000 < len(task.train) + len(task.test) < 33_000


def test_the_digest_of_a_model_is_that_of_its_weights_and_tokenizer(workload, spoiled):
    before = workload(model=str(spoiled)).task(0).digests["model"]
    (spoiled / "pytorch_model.bin").write_bytes(b"is not read")
    assert workload(model=str(spoiled)).task(0).digests["model"] == before
    weights = bytearray((spoiled / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (spoiled / "model.safetensors").write_bytes(weights)
    assert workload(model=str(spoiled)).task(0).digests["model"] != before
