#!/usr/bin/env python3
"""Count words of the project's old dialect: `tools/count_dialect.py [--files] [FOLDER ...]`.

Each row is a word that the project no longer uses, and the word that it uses instead. What `JUSTIFIED` lists is
counted apart, with its reason: names and texts that are saved, signed or sent, and old names that are still accepted.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

WORDS = {
    r"\blets? out\b|\bletting out\b|\blet_out\b|was let out": "release, released",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\btold\b|(?<!\.)\btells?\b": "returns, reports, warns",
    r"\bdealt?\b|\bdeals\b|\bdealing\b|--deal\b": "partition",
    r"\bwhoever\b|who(ever)? is (curious|watching)": "adversary",
    r"\bunit noises?\b|\bTogether\b": "noise terms, shared noise",
    r"\bpric(e|ed|es|ing)\b": "account, compute_epsilon",
    r"\blooks?\b(?! up\b| at least)|\blooked\b|\bSeen\b": "evaluate, snapshot, metrics; release",
    r"\basked\b|(?<!\w)together\(|\basks\b": "submit, run_batch",
    r"\bkeepers?\b": "checkpointer",
    r"\balike\b": "batch_key; the same",
    r"\brenoised\b|\bkin\b": "with_noise, reusable",
    r"\bIngredients\b|\bSetting\b": "MethodContext, MechanismContext",
    r"\bLaw\b|\blaws? of noise\b": "NoiseMechanism",
    r"\bSeldom\b": "RandomParticipation",
    r"\bFacts\b": "PublicInputs, BaselineInputs",
    r"\.but\(": "replace",
    r"\bshape step\b|\bno_shape\b|--no-shape": "private scaling",
    r"\bforth\b": "transform",
    r"\brefuse_[a-z_]+": "check_*, validate_*",
    r"\bPaused\b|\bStranger\b|\bUnheard\b": "PeerTimeout, UnknownPeer, OutputError",
    r"\btake_in\b|\blinger\b|\bgoes_on\b": "decode, drain, resume",
    r"\bWORTH\b|\blacking\b|\bblur\b": "noise_rtol, auto_threshold, unavailable",
    r"(?<!\w)units=|--units?(?![-\w])": "user_ids",
    r"\bone after the other\b": "sequentially",
    r"\bvoice\b|\bsaid\.py\b|\bgate\b|\bvault\b": "console, untrusted_input, flare_hardening, credentials",
    r"\bcrew\b|\bchorus\b|\bsings?\b|\bspeak\.py\b|\bbundles\b|\bcrowd\b": "threads, all_nodes, large_n",
    r"\bcoins\b|\bcompound\b": "random_secret_graph, composite_events",
    r"--weigh\b|--ask\b|--try\b|--lost\b|--correct\b|--h\b|--counted\b": "see GLOSSARY: options",
    r"\bsomebody\b|\bnobody knows\b|\bin good English\b|\bone sentence\b": "say who; delete",
    r"\bof its own accord\b|\bby themselves\b|\bgone through\b|\blies beside\b": "automatically; delete",
    r"(?<!\w)(LARGEST|MOST|FEW|PATIENCE|SURE)(?!\w)": "a constant's name says what it bounds",
}
JUSTIFIED = {
    (
        r"\bcoins\b ?[=:]|\"coins\"|'coins=|`coins|cut=\"?priced|'priced'|\"priced\"|"
        r"cut, peers, coins|public coins|coins decide|coins leave|coins are|coins of"
    ): (
        "the registry text of noise that pairs share: 'pairs(r, peers=…, coins=…, cut=priced)', and its error messages"
    ),
    r"\"asks\"|asks=": "a key of messages between nodes",
    r"\"tell\"": "a kind of messages between nodes",
    r"\"asked\"": "a key of saved evaluations",
    r"\"price\"": "a key of `plan --json`",
    r"tells? the observer|whoever (admits|spoke|evaluated)|as whoever|if that looked at|tell (AES|noise)": (
        "assumptions of a privacy statement, which are saved and compared"
    ),
    (
        r"_renamed|\.but\(seed=3\)|units=\\\\\)|units=\[0|--deal\b|`--(weigh|ask|try|lost|correct|h|"
        r"deal|unit|no-shape)`"
    ): "old names that are still accepted, and their tests",
    r"lognormal|income|\(price - 2\.5\)": "columns of a benchmark's synthetic table",
}
"""Lines where an old word stays, and why."""
ALIASES = ("_renamed.py", "test_renamed.py")
SUFFIXES = (".py", ".md", ".cu", ".cpp", ".hpp", ".h", ".c", ".toml", ".pyi")
HERE = Path(__file__).resolve()


def tracked(folders: list[str]) -> list[Path]:
    """Tracked text files below the folders."""
    names = subprocess.run(["git", "ls-files", *folders], capture_output=True, text=True, check=True).stdout
    return [p for p in map(Path, names.splitlines()) if p.suffix in SUFFIXES and p.resolve() != HERE and p.exists()]


def inside_names(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled so that it also finds a word inside a name, such as `what_is_told` or `FEW_ROWS`."""
    parts = re.sub(r"\\b(?=[a-zA-Z(])", "(?<![A-Za-z])", pattern)
    return re.compile(parts.replace(r"\b", "(?![A-Za-z])"), 0 if re.search(r"(?<!\\)[A-Z]", pattern) else re.IGNORECASE)


def main() -> None:
    """Print a count for each word, or each file, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["src", "plugins", "tests", "docs", "benchmarks", "README.md"])
    parser.add_argument("--files", action="store_true", help="count by file in place of by word")
    parser.add_argument("--show", metavar="TEXT", help="print the lines that hold this text of the old dialect")
    options = parser.parse_args()
    patterns = {pattern: inside_names(pattern) for pattern in WORDS}
    counts: Counter[str] = Counter()
    justified: Counter[str] = Counter()
    for path in tracked(options.folders):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for pattern, compiled in patterns.items():
                found = len(compiled.findall(line))
                if not found:
                    continue
                if path.name in ALIASES:
                    justified["old names that are still accepted, and their tests"] += found
                    continue
                reason = next((why for part, why in JUSTIFIED.items() if re.search(part, line)), None)
                if reason is not None:
                    justified[reason] += found
                    continue
                if found:
                    counts[str(path) if options.files else pattern] += found
                    if options.show and re.search(options.show, line):
                        print(f"{path}:{number}: {line.strip()}")
    for name, count in counts.most_common():
        sys.stdout.write(f"{count:6}  {name}" + ("" if options.files else f"  ->  {WORDS[name]}") + "\n")
    sys.stdout.write(f"{sum(counts.values()):6}  in all, and {sum(justified.values())} with a reason\n")
    for reason, count in justified.most_common():
        sys.stdout.write(f"{count:6}  stay: {reason}\n")


if __name__ == "__main__":
    main()
