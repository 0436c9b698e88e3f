import pytest

from art_e.errors import UserError
from art_e.models.choose import choose_policy
from art_e.models.offline import ABSTAIN_BELOW, OfflinePolicy


def test_offline_is_the_policy_without_a_model() -> None:
    policy = choose_policy("offline")
    assert isinstance(policy, OfflinePolicy)
    assert policy.model == "offline"
    assert policy.settings == {"abstain_below": ABSTAIN_BELOW}


@pytest.mark.parametrize("model", ["", "Offline", "offline ", "nobody/has-this", "a\nb"])
def test_an_unknown_model_is_a_user_error_of_one_line(model: str) -> None:
    with pytest.raises(UserError) as error:
        choose_policy(model)
    text = str(error.value)
    assert "\n" not in text
    assert repr(model) in text
    assert "offline" in text
