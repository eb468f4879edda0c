"""The rules that must hold, and the rules that are not enforced yet."""

from tests.tidy import imports, language, names, references, sizes, tests

RULES = (
    sizes.long_modules,
    sizes.long_functions,
    sizes.undocumented_modules,
    names.shapeless_modules,
    names.synonyms,
    tests.sleeping_tests,
    tests.assertionless_tests,
    tests.misplaced_tests,
    tests.forks_beside_threads,
    imports.imports_beyond_the_stubs,
    imports.rocksdb_outside_storage,
    imports.grpc_in_handlers,
    imports.addresses_of_registries,
    imports.type_checking_imports,
    names.modules_not_named_after_their_class,
    names.repeated_class_names,
    references.dangling_references,
    language.bare_references,
    language.long_first_lines,
    language.old_words,
    language.unexplained_suppressions,
)
"""Enforced by ``tests/test_tidy.py``."""

DRAFTS = (language.riddles,)
"""Only printed by ``python -m tests.tidy``."""
