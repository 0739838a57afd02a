"""Which analyzer an imported model gets: English terms, or terms of any language, by the languages of its tokenizer.

Article 1 of the Universal Declaration of Human Rights says the same in all languages. A tokenizer for English needs far more tokens
for it in any other language; a multilingual tokenizer needs about the same number in some of them.
"""

from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.languages import LANGUAGES
from keyblock.text.tokenizer import Tokenizer

ENGLISH = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act "
    "towards one another in a spirit of brotherhood."
)
OTHERS = (
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen "
    "einander im Geist der Brüderlichkeit begegnen.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia, deben "
    "comportarse fraternalmente los unos con los otros.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в "
    "отношении друг друга в духе братства.",
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح الإخاء.",
    "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
)
MOST = 1.5  # times the tokens of the English text: MiniLM's English tokenizer needs at least 1.8 times
CHOICES = ("english", "universal", *LANGUAGES)


def default_analyzer(tokenizer: Tokenizer) -> AnalyzerConfig:
    """English if the tokenizer is made for English alone, else universal."""
    english, *translations = tokenizer.encode([ENGLISH, *OTHERS])
    unknown = {tokenizer.backend.token_to_id(name) for name in ("[UNK]", "<unk>")}
    least = min((len(one.ids) for one in translations if not unknown & set(one.ids)), default=0)
    multilingual = 0 < least <= MOST * len(english.ids)
    return AnalyzerConfig(name="universal") if multilingual else AnalyzerConfig()


def named_analyzer(name: str) -> AnalyzerConfig:
    """The analyzer named by one of CHOICES."""
    return AnalyzerConfig.model_validate({"name": name} if name in CHOICES[:2] else {"language": name})
