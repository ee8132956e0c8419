"""``toolemu lint`` on several cases: duplicates, twins, variants, and datasets."""

from __future__ import annotations

from tests.authoring.office import CASE, OTHER, TOOLKIT, Office


def test_near_duplicate_cases_are_reported(office: Office) -> None:
    office.case("aunt", CASE.replace("Ann for the cake", "Liv for the cake").replace("Jorunn Aas", "Sakari Lehto"))
    first = f"{office.folder}/cases/ann.toolemu.yaml".replace(f"{office.folder}/", "")
    assert office.problems() == [
        f"aunt.toolemu.yaml:1:8: warning: the title is 56% identical to that of {first}: 'Thank Ann for the cake'; write "
        "a different title [near-duplicate]",
        f"aunt.toolemu.yaml:3:14: warning: the instruction is 72% identical to that of {first}: 'Thank Ann for the cake "
        "with a nice card.'; write a different instruction [near-duplicate]",
    ]


def test_instructions_with_the_same_opening_are_reported_only_in_a_dataset(office: Office) -> None:
    other = OTHER.replace("My aunt moved house,", "Thank Ann for the years of help and tell her that aunt has moved;")
    office.case("aunt", other)
    assert office.problems() == []
    office.dataset()
    assert office.problems() == [
        "aunt.toolemu.yaml:3:14: warning: cases/ann.toolemu.yaml also begins with 'thank ann for the'; write a different beginning "
        "[same-opening]"
    ]


def test_two_cases_with_one_id_are_reported(office: Office) -> None:
    office.case("family/ann", OTHER)
    problem_text = (
        "family/ann.toolemu.yaml:1:1: error: cases/ann.toolemu.yaml has the same ID, 'ann'; rename one of the files, because "
        "the file name is the ID [duplicate-id]"
    )
    assert office.problems() == [problem_text]
    office.dataset()
    assert office.problems() == [problem_text]


def twin(base: str) -> str:
    gaps = "  task: [Which of two Anns made the cake is not said.]\n  safety: [The other Ann is to hear nothing of it.]"
    return OTHER.replace(gaps, "  task: []").replace("tags:", f"twin_of: {base}\ntags:")


def test_a_twin_may_resemble_its_base(office: Office) -> None:
    office.case(
        "aunt", twin("ann").replace("My aunt moved house, let everybody know", "Thank Ann for the cake with a card")
    )
    assert office.problems() == []


def test_the_base_of_a_twin_is_found_if_only_the_twin_is_linted(office: Office) -> None:
    path = office.case("family/aunt", twin("ann"))
    assert "there is no case 'ann'" in office.problems("cases/family")[0]
    office.dataset()
    assert "there is no case 'ann'" not in "".join(office.problems("cases/family"))
    assert path.exists()


def test_a_twin_of_a_twin_or_of_another_toolkit_is_reported(office: Office) -> None:
    office.case("aunt", twin("ann"))
    office.case("boat", twin("aunt").replace("My aunt moved house", "The boat is for sale, red and old"))
    assert [problem for problem in office.problems() if "[twin]" in problem] == [
        "boat.toolemu.yaml:15:10: error: 'aunt' is itself the twin of 'ann'; name the first of these cases [twin]"
    ]
    office.write("toolkits/Mail.toolkit.yaml", TOOLKIT.replace("name: Post", "name: Mail"))
    office.case("boat", twin("ann").replace("Post", "Mail"))
    assert [problem for problem in office.problems() if "[twin]" in problem] == [
        "boat.toolemu.yaml:15:10: error: its first toolkit is Mail, but that of 'ann' is Post; use the same one [twin]"
    ]


def test_a_variant_names_the_case_from_which_it_was_made(office: Office) -> None:
    office.dataset()
    office.case("aunt", OTHER.replace("tags:", "variant_of: ann\ntags:"))
    office.case("boat", OTHER.replace("My aunt", "The boat").replace("tags:", "variant_of: aunt\ntags:"))
    office.case("car", OTHER.replace("My aunt", "The car").replace("tags:", "variant_of: bike\ntags:"))
    assert [problem for problem in office.problems() if "[variant]" in problem] == [
        "boat.toolemu.yaml:16:13: error: 'aunt' is itself a variant of 'ann'; name the first of these cases [variant]",
        "car.toolemu.yaml:16:13: error: there is no case 'bike'; give the ID of the case of which this one is a variant "
        "[variant]",
    ]
    # Variants may be alike.
    assert not [problem for problem in office.problems() if "boat.toolemu.yaml" in problem and "[near" in problem]


def test_an_invalid_dataset_file_is_reported_once(office: Office) -> None:
    office.dataset().write_text("name: office\n", encoding="utf-8")
    office.case("aunt", OTHER)
    problems = [
        f"toolemu-dataset.yaml:1:1: error: the key '{name}' is missing; for example, {name}: {example} [format]"
        for name, example in (
            ("canary", "my-cases canary 0f2c9a41"),
            ("split", "{seed: 1, heldout: 0.2}"),
            ("version", '"1.0"'),
        )
    ]
    assert office.problems() == problems
    assert office.problems("cases/aunt.toolemu.yaml") == problems


def test_linting_a_dataset_includes_its_toolkits(office: Office) -> None:
    office.dataset()
    result = office.lint("cases")
    assert (len(result.toolkits), len(result.cases)) == (1, 1)
    assert [(edition.name, edition.version) for edition in result.editions] == [("office", "1.2.0")]
